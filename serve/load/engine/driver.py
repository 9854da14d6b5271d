"""Drives a plan's calls: one greenlet that wakes for starts, sweeps, and the end of each second.

    −warm_up          0                                    seconds          drained
       │ calls, not    │ calls; windows are told each second   │ nothing starts,  │
       │ recorded      │                                       │ answers come     │

All else happens in callbacks of the loop: answers end calls, and calls that waited start.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from serve.load.arrivals import opening_rate, starts
from serve.load.engine.alarm import Alarm
from serve.load.engine.closed_loop import ClosedLoop, first_starts
from serve.load.engine.lane_calls import LaneCalls, choices
from serve.load.engine.open_loop import OpenLoop
from serve.load.engine.recorder import WindowRecorder
from serve.load.engine.senders import Sender
from serve.load.plan import Arrivals, Closed, LoadPlan
from serve.load.record import RecordWindow
from serve.load.sequences import IDS

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
