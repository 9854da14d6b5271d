"""What sends the calls, in gevent's loop. Only the child process imports this."""
