"""Whether a process lives, for tests that start and end some."""

import os
import select

from serve.processes.table import row

PATIENCE = 10.0  # seconds; a bound for what takes milliseconds


def ends(pid: int, within: float = PATIENCE) -> bool:
    """The process has ended, or does so in time."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = bool(poll.poll(within * 1000))
    os.close(pidfd)
    return ended


def lives(pid: int) -> bool:
    """It is there and is no zombie."""
    found = row(pid)
    return found is not None and not found.is_zombie
