"""An alarm clock for one greenlet, by the kernel's timerfd.

epoll counts in whole milliseconds, and so do gevent's own timers: a start would be late by half a
millisecond on average, as long as some answers take. A timerfd is late by what it takes to wake.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable

from gevent import get_hub

_LIBC = ctypes.CDLL(None, use_errno=True)
_READ = 1


class _Setting(ctypes.Structure):
    """`struct itimerspec`: a repetition, which we never ask for, and the time until it rings."""

    _fields_ = (
        ("again", ctypes.c_longlong * 2),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class Alarm:
    """Wakes the greenlet that waits. Times are of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._setting = _Setting()
        self._until = math.inf
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._hub = get_hub()
        self._watcher = self._hub.loop.io(self._descriptor, _READ)

    def __repr__(self) -> str:
        return f"<Alarm at {self._until:.6f}>"

    def wait(self, until: float) -> None:
        """Let others run until then; at least one turn of the loop, however late it is."""
        self._set(until)
        self._hub.wait(self._watcher)
        self._until = math.inf

    def hasten(self, until: float) -> None:
        """Ring already then, if somebody waits for longer."""
        if until < self._until < math.inf:
            self._set(until)

    def close(self) -> None:
        """Give it back."""
        self._watcher.close()
        os.close(self._descriptor)

    def _set(self, until: float) -> None:
        # Setting takes back a ring that nobody has heard, so it is never read.
        self._until = until
        left = max(until - self._clock(), 1e-6)
        self._setting.seconds = int(left)
        self._setting.nanoseconds = int(left % 1 * 1e9)
        _LIBC.timerfd_settime(self._descriptor, 0, ctypes.byref(self._setting), None)
