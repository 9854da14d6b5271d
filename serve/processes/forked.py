"""Keeps forked children running, from a parent that does nothing else.

The parent has imported what its children need; all of them share that memory until one writes to
it. The parent is synchronous on purpose. A fork copies one thread only: a lock that another thread
holds stays locked for ever in the child, and an event loop would belong to both. So it has no loop
and no threads; it waits with `sigtimedwait`. The signals it waits for stay blocked from before the
first fork, so none is lost, and no handler ever runs.

    starts ──▶ runs ──(ends)──▶ backs off ──(the delay is over)──▶ runs …

    SIGTERM or SIGINT to the parent, at any time: SIGTERM to all, grace, SIGKILL, `keep` returns

A child begins with nothing blocked and no handler but Python's own, dies with the parent, and ends
with `os._exit`: it never returns into the code of the parent. Python seeds the functions of
`random` anew in each child, and `os.urandom` (so `secrets`, `uuid4`) draws from the kernel; a
`random.Random()` made before the fork would draw the same in all.
"""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from serve.processes.children import Exit
from serve.processes.kernel import die_with
from serve.processes.supervised import Backoff

_log = logging.getLogger("servegate.processes")
_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
_AWAITED = _STOPPING | {signal.SIGCHLD}
_LONGEST_WAIT = 3600.0  # seconds; without news there is nothing to do


@dataclass(slots=True)
class ForkedChild:
    """One numbered child. While it runs it has a pid; else it starts when `due` has come.

    Times are monotonic seconds.
    """

    name: str
    pid: int | None = None
    began: float = 0.0
    failures: int = 0
    due: float = 0.0

    def start(self, pid: int, now: float) -> None:
        """A process runs here."""
        self.pid, self.began = pid, now

    def end(self, now: float, backoff: Backoff) -> float:
        """It has ended, or could not be started: the delay until it is started again."""
        was_healthy = self.pid is not None and now - self.began >= backoff.healthy
        self.failures = 1 if was_healthy else self.failures + 1
        delay = backoff.delay(self.failures)
        self.pid, self.due = None, now + delay
        return delay


class Forked:
    """Children by name; child n runs `work(n)` in a process of its own.

    `grace` is the time in seconds that they have after SIGTERM.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        work: Callable[[int], None],
        *,
        grace: float,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = tuple(ForkedChild(name) for name in names)
        self._work = work
        self._grace = grace
        self._backoff = backoff or Backoff()
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Forked { ({place.name: place.pid for place in self._places}) }>"

    def keep(self) -> None:
        """Keep all of them running until SIGTERM or SIGINT comes; none is left on return."""
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        try:
            while True:
                self._start_due(mask)
                news = signal.sigtimedwait(_AWAITED, self._patience())
                if news is not None and news.si_signo in _STOPPING:
                    return
                self._reap(self._fail)
        finally:
            self._stop()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _start_due(self, mask: Iterable[int]) -> None:
        now = self._clock()
        for number, place in enumerate(self._places):
            if place.pid is None and place.due <= now:
                try:
                    place.start(self._fork(number, mask), now)
                except OSError as error:  # no memory, or too many processes
                    self._fail(place, f"cannot start: {error.strerror or error}")

    def _patience(self) -> float:
        due = (place.due for place in self._places if place.pid is None)
        return min(_LONGEST_WAIT, max(0.0, min(due, default=float("inf")) - self._clock()))

    def _reap(self, on_end: Callable[[ForkedChild, str], None]) -> None:
        """Take leave of the children that have ended; one SIGCHLD may stand for several."""
        for place in self._places:
            if place.pid is not None and (status := _ended(place.pid)) is not None:
                on_end(place, f"ended: {Exit(os.waitstatus_to_exitcode(status))}")

    def _fail(self, place: ForkedChild, reason: str) -> None:
        name = place.name if place.pid is None else f"{place.name} ({place.pid})"
        delay = place.end(self._clock(), self._backoff)
        _log.warning("%s %s; it restarts in %.1f s", name, reason, delay)

    def _stop(self) -> None:
        until = self._clock() + self._grace
        self._signal(signal.SIGTERM)
        self._reap(_leave)
        while self._are_left and (left := until - self._clock()) > 0:
            signal.sigtimedwait({signal.SIGCHLD}, left)
            self._reap(_leave)
        for place in self._places:
            if place.pid is not None:
                _log.warning("%s (%d) did not stop in time; killing it", place.name, place.pid)
        self._signal(signal.SIGKILL)
        for place in self._places:
            if place.pid is not None:
                os.waitpid(place.pid, 0)

    @property
    def _are_left(self) -> bool:
        return any(place.pid is not None for place in self._places)

    def _signal(self, number: signal.Signals) -> None:
        for place in self._places:
            if place.pid is not None:
                os.kill(place.pid, number)  # not yet reaped, so the number is still its own

    def _fork(self, number: int, mask: Iterable[int]) -> int:
        _flush()  # else the child would write it, too
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._live(number, parent, mask)
        return pid

    def _live(self, number: int, parent: int, mask: Iterable[int]) -> NoReturn:
        """The whole life of a child."""
        name, code = self._places[number].name, 1
        try:
            die_with(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._work(number)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            _log.critical("%s (%d) crashed", name, os.getpid(), exc_info=True)
        finally:
            _flush()
            os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()


def _leave(place: ForkedChild, reason: str) -> None:
    """It ended because it was asked to."""
    place.pid = None


def _ended(pid: int) -> int | None:
    """The wait status of a child that has ended, which is reaped by that; None if it lives."""
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return status if reaped else None
