"""A package, so that fixtures of this scope end when another folder's tests begin.

Playwright keeps an event loop open in its thread until then.
"""
