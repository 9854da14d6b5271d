"""Load tests that tell the truth: calls at intended times, and what users would have seen.

A run is made in three places. The command prepares a `Plan` with all bodies in it, and asks the
gateway's side what it saw. A child process, `child.py`, drives the calls under gevent and locust,
and tells windows of what happened, a line each. The command merges them into a `Record`.
"""
