"""Drives a plan's calls: one greenlet that wakes for starts, sweeps, and the end of each second.

    −warm_up          0                                    seconds          drained
       │ calls, not    │ calls; windows are told each second   │ nothing starts,  │
       │ recorded      │                                       │ answers come     │

All else happens in callbacks of the loop: answers end calls, and calls that waited start.

An alarm clock for one greenlet, by the kernel's timerfd.

epoll counts in whole milliseconds, and so do gevent's own timers: a start would be late by half a
millisecond on average, as long as some answers take. A timerfd is late by what it takes to wake.

The open loop: calls start when they are meant to, whatever has become of those before them.

An arrival for which there is no connection waits, and its latency grows meanwhile, as its user's
would. In a lane with sequences an arrival is a whole sequence: each of its calls is meant to start
when the one before it ends, even where that one failed, so that the server hears of the end.

The closed loop: users who wait for each answer before they call again.

A user's next call is due `think` seconds after the answer, and not before `period` seconds after
the last start. So a slow answer moves all that would have come after it, and the slowness is seen
by one call only: this loop is here because everybody measures so, and to show the difference.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from gevent import get_hub

from serve.workbench.loadtest.arrivals import opening_rate, starts
from serve.workbench.loadtest.engine.lane_calls import Body, LaneCalls, choices
from serve.workbench.loadtest.engine.recorder import WindowRecorder
from serve.workbench.loadtest.engine.senders import Sender
from serve.workbench.loadtest.plan import Arrivals, Closed, LoadPlan
from serve.workbench.loadtest.record import RecordWindow
from serve.workbench.loadtest.sequences import IDS

# --- the closed loop ------------------------------------------------------------------------------


_STAGGER = 0.001  # seconds between the first calls of users who neither think nor keep a pace
_STAGGER_MOST = 0.5

User = Iterator[tuple[LaneCalls, Body]]


def first_starts(
    users: int, *, spread: float, worker: int = 0, workers: int = 1
) -> tuple[float, ...]:
    """When this worker's users begin: all users of the run at equal steps over `spread` seconds."""
    spread = spread or min(users * _STAGGER, _STAGGER_MOST)
    return tuple(spread * user / users for user in range(worker, users, workers))


class ClosedLoop:
    """`firsts`: when each user begins, by the clock. `choice`: the lane of each user's next call.

    `hasten` is called with a time at which something is due earlier than `wake` has said.
    """

    def __init__(
        self,
        lanes: Sequence[LaneCalls],
        *,
        firsts: Sequence[float],
        choice: Iterator[LaneCalls],
        think: float = 0.0,
        period: float = 0.0,
        hasten: Callable[[float], None],
    ) -> None:
        self._lanes = lanes
        self._think = think
        self._period = period
        self._hasten = hasten
        self._due = [(first, number) for number, first in enumerate(firsts)]
        self._users = [_calls(choice) for _ in firsts]
        heapq.heapify(self._due)

    def __repr__(self) -> str:
        return f"<ClosedLoop of {len(self._users)} users, {len(self._due)} at rest>"

    def wake(self, now: float) -> float:
        """Start all that is due, in order; returns when the next will be, as far as is known."""
        while self._due and self._due[0][0] <= now:
            due, user = heapq.heappop(self._due)
            self._call(user, due)
        return self._due[0][0] if self._due else float("inf")

    def stop(self, now: float) -> None:
        """The run's seconds are over: nobody calls again."""
        self._due.clear()
        for each in self._lanes:
            each.stop(now)

    def _call(self, user: int, due: float) -> None:
        lane, (payload, body) = next(self._users[user])
        lane.make(due, payload, body, lambda started, ended: self._call_again(user, started, ended))

    def _call_again(self, user: int, started: float, ended: float) -> None:
        due = max(started + self._period, ended + self._think)
        if due <= ended:
            self._call(user, due)
        else:
            heapq.heappush(self._due, (due, user))
            self._hasten(due)


def _calls(choice: Iterator[LaneCalls]) -> User:
    """All calls of one user: a lane, and as many calls there as belong together."""
    for lane in choice:
        for body in lane.bodies():
            yield lane, body


# --- the open loop --------------------------------------------------------------------------------


class OpenLoop:
    """`starts`: ascending, by the clock. `choice`: the lane of each arrival, without end."""

    def __init__(
        self, lanes: Sequence[LaneCalls], *, starts: Iterator[float], choice: Iterator[LaneCalls]
    ) -> None:
        self._lanes = lanes
        self._starts = starts
        self._choice = choice
        self._due = next(starts, math.inf)

    def __repr__(self) -> str:
        return f"<OpenLoop, next at {self._due:.6f}>"

    def wake(self, now: float) -> float:
        """Start all that is due, in order; returns when the next will be, `inf` after the last."""
        while self._due <= now:
            due, self._due = self._due, next(self._starts, math.inf)
            lane = next(self._choice)
            if lane.has_sequences:
                _follow(lane, lane.bodies(), due)
            else:
                lane.make_next(due)
        return self._due

    def stop(self, now: float) -> None:
        """The run's seconds are over: what still waits never starts."""
        self.wake(now)
        for each in self._lanes:
            each.stop(now)


def _follow(lane: LaneCalls, bodies: Iterator[Body], intended: float) -> None:
    found = next(bodies, None)
    if found is not None:
        lane.make(intended, *found, lambda _, ended: _follow(lane, bodies, ended))


# --- an alarm clock for one greenlet, by the kernel's timerfd -------------------------------------


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


# --- drives a plan's calls ------------------------------------------------------------------------


_SWEEP = 0.05  # seconds between two looks for calls over their time
_PAUSE = 0.00025  # seconds between two wakings for starts, at least
_GRACE = 2.0  # seconds after the last call's time in which every sender has told its end

Tell = Callable[[int, RecordWindow], None]
Clock = Callable[[], float]


class Loop(Protocol):
    """Decides when calls start."""

    def wake(self, now: float) -> float:
        """Start what is due; returns when more will be, by the clock."""
        ...

    def stop(self, now: float) -> None:
        """Start nothing more."""
        ...


def run_plan(
    plan: LoadPlan,
    senders: Sequence[Sender],
    *,
    worker: int,
    workers: int,
    tell: Tell,
    clock: Clock,
) -> None:
    """Make one worker's share of the calls, warm-up first; `senders` are in the lanes' order.

    It runs in a greenlet and returns when all calls have ended. The senders stay open. `tell` gets
    what is known of a second, several times for the same one; what it raises ends the run.
    """
    times = _primed(_times(plan, worker, workers))
    begins = clock() + plan.warm_up
    recorder = WindowRecorder(begins, plan.seconds)
    identities = _identities(worker, workers)
    lanes = _lanes(plan, senders, recorder, identities, clock)
    alarm = Alarm(clock)
    try:
        choice = choices(lanes, seed=f"{plan.seed} {worker}")
        at = (begins + each for each in times)
        loop = _loop(plan, lanes, at, choice, alarm.hasten)
        _Drive(plan, loop, lanes, senders, recorder=recorder, begins=begins, tell=tell).run(
            alarm, clock
        )
    finally:
        alarm.close()


def _lanes(
    plan: LoadPlan,
    senders: Sequence[Sender],
    recorder: WindowRecorder,
    identities: Iterator[int],
    clock: Clock,
) -> list[LaneCalls]:
    return [
        LaneCalls(
            number,
            lane,
            sender=sender,
            recorder=recorder,
            identities=identities,
            from_start=plan.arrivals is None,
            clock=clock,
        )
        for number, (lane, sender) in enumerate(zip(plan.lanes, senders, strict=True))
    ]


def _loop(
    plan: LoadPlan,
    lanes: Sequence[LaneCalls],
    times: Iterator[float],
    choice: Iterator[LaneCalls],
    hasten: Callable[[float], None],
) -> Loop:
    closed = plan.closed
    if closed is None:
        return OpenLoop(lanes, starts=times, choice=choice)
    return ClosedLoop(
        lanes,
        firsts=tuple(times),
        choice=choice,
        think=closed.think,
        period=_period(closed),
        hasten=hasten,
    )


def _times(plan: LoadPlan, worker: int, workers: int) -> Iterator[float]:
    """Of one worker's starts, or of its users' first ones, from second 0; warm-up first.

    The open loop's warm-up goes at the rate that the run begins with.
    """
    if plan.arrivals is None:
        closed = plan.closed or Closed(1)
        spread = _period(closed) or closed.think
        firsts = first_starts(closed.users, spread=spread, worker=worker, workers=workers)
        yield from (first - plan.warm_up for first in firsts)
        return
    parts = (
        (-plan.warm_up, Arrivals(opening_rate(plan.arrivals)), plan.warm_up),
        (0.0, plan.arrivals, plan.seconds),
    )
    for since, part, seconds in parts:
        drawn = starts(part, seconds, seed=plan.seed, worker=worker, workers=workers)
        yield from (since + at for at in drawn)


def _period(closed: Closed) -> float:
    return closed.users / closed.rate if closed.rate else 0.0


def _primed(times: Iterator[float]) -> Iterator[float]:
    """The same, with the first of them drawn already: what is long is over before the start."""
    first = tuple(itertools.islice(times, 1))
    return itertools.chain(first, times)


def _identities(worker: int, workers: int) -> Iterator[int]:
    """Numbers for sequences: each worker has a range, in which runs begin at the time of day.

    So they differ from those of other workers, and from those of the runs before, as long as no
    worker begins a million sequences per second.
    """
    room = IDS // workers
    first = time.time_ns() // 1000
    return (worker * room + (first + count) % room for count in itertools.count())


class _Drive:
    """The greenlet's part of one run."""

    def __init__(
        self,
        plan: LoadPlan,
        loop: Loop,
        lanes: Sequence[LaneCalls],
        senders: Sequence[Sender],
        *,
        recorder: WindowRecorder,
        begins: float,
        tell: Tell,
    ) -> None:
        self._loop = loop
        self._lanes = lanes
        self._senders = senders
        self._recorder = recorder
        self._tell = tell
        self._begins = begins
        self._ends = begins + plan.seconds
        self._gives_up = self._ends + plan.timeout + _GRACE
        self._next_sweep = begins - plan.warm_up
        self._next_second = begins
        self._is_over = False

    def __repr__(self) -> str:
        return f"<_Drive of {self._loop}>"

    def run(self, alarm: Alarm, clock: Clock) -> None:
        """Until all calls have ended, or none can any more."""
        while True:
            now = clock()
            is_second = now >= self._next_second
            if is_second:
                self._end_second(now)
            due = self._wake(now)
            if now >= self._next_sweep:
                self._sweep(now)
            if is_second:
                self._tell_all()
            in_flight = sum(each.in_flight for each in self._lanes)
            if self._is_over and (not in_flight or now > self._gives_up):
                break
            alarm.wait(min(max(due, now + _PAUSE), self._next_sweep, self._next_second))
        self._tell_all()

    def _wake(self, now: float) -> float:
        if now < self._ends:
            return min(self._loop.wake(now), self._ends)
        if not self._is_over:
            self._is_over = True
            self._loop.stop(self._ends)
        return math.inf

    def _sweep(self, now: float) -> None:
        for sender in self._senders:
            sender.sweep(now)
        for lane in self._lanes:
            lane.start_waiting()
        self._recorder.gather()
        self._next_sweep = now + _SWEEP

    def _end_second(self, now: float) -> None:
        if self._next_second == self._begins:
            for each in self._lanes:
                each.forget_before(self._begins)
        self._recorder.looked(
            now,
            in_flight=sum(each.in_flight for each in self._lanes),
            waiting=sum(each.waiting for each in self._lanes),
            cpu=time.process_time(),
        )
        self._next_second = self._begins + math.floor(now - self._begins) + 1

    def _tell_all(self) -> None:
        for second, window in self._recorder.fold():
            self._tell(second, window)
