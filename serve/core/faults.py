"""Faults: exceptions of our own code that no caller expects.

Code of one connection runs inside the callbacks of others: flushes, answers, retries, sweeps. Each
such place catches `Exception`, ends the connection or the call that the code belongs to, and
reports it here. So a fault costs one connection, and the log has it once.
"""

import logging
from collections.abc import Callable

_log = logging.getLogger("servegate.faults")
WHAT = "an internal error in the gateway"


def report(owner: object, error: Exception) -> None:
    """Write a fault to the log, with what is ended because of it."""
    _log.error("internal error, %r is closed: %r", owner, error, exc_info=error)


def contained(owner: object, act: Callable[..., object], *arguments: object) -> bool:
    """Whether this call raised nothing; a fault is reported, and goes no further."""
    try:
        act(*arguments)
    except Exception as error:
        report(owner, error)
        return False
    return True
