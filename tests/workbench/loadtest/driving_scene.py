"""What tests of drivers need: a clock and senders, whose calls end when a test says so or soon."""

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gevent import get_hub
from gevent.event import Event

from serve.workbench.loadtest.engine.driver import ClosedLoop, OpenLoop, run_plan
from serve.workbench.loadtest.engine.lane_calls import LaneCalls
from serve.workbench.loadtest.engine.recorder import WindowRecorder
from serve.workbench.loadtest.engine.senders import Done, Sender
from serve.workbench.loadtest.plan import Lane, LaneProtocol, LoadPlan, Payload, Sequences
from serve.workbench.loadtest.record import RIGHT, Record
from serve.workbench.loadtest.sequences import sequence_marker


class Clock:
    """Says the time that it was set to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Sent:
    """A call that was started."""

    body: bytes
    at: float
    done: Done


class ScriptedSender:
    """Takes up to `most` calls, which are in flight until `end`; `sent` are all there were."""

    def __init__(self, clock: Clock, *, most: int = 1000) -> None:
        self._clock = clock
        self._most = most
        self.sent: list[Sent] = []
        self.in_flight: deque[Sent] = deque()

    def send(self, payload: Payload, body: bytes, done: Done) -> bool:
        if len(self.in_flight) >= self._most:
            return False
        self.sent.append(Sent(body, self._clock.now, done))
        self.in_flight.append(self.sent[-1])
        return True

    def end(self, at: float, outcome: str = RIGHT) -> None:
        """The oldest call in flight ends at this time."""
        self._clock.now = at
        self.in_flight.popleft().done(outcome, "", at)

    def sweep(self, now: float) -> None: ...

    def close(self) -> None: ...


class Ends:
    """What is told of so many calls, in the order of their ends: outcome and decision."""

    def __init__(self, count: int = 1) -> None:
        self.told: list[tuple[str, str]] = []
        self._count = count
        self._all = Event()

    def done(self, outcome: str, decision: str, ended: float) -> None:
        self.told.append((outcome, decision))
        if len(self.told) == self._count:
            self._all.set()

    def wait(self) -> list[tuple[str, str]]:
        assert self._all.wait(20.0), self.told
        return self.told


class DelayedSender:
    """Answers after a delay, by gevent's timers; `sent` are the bodies."""

    def __init__(self, clock: Callable[[], float], delay: float, *, most: int = 1000) -> None:
        self._clock = clock
        self._delay = delay
        self._most = most
        self._timers: set[Any] = set()
        self.sent: list[bytes] = []
        self.sweeps = 0

    def send(self, payload: Payload, body: bytes, done: Done) -> bool:
        if len(self._timers) >= self._most:
            return False
        self.sent.append(body)
        timer = get_hub().loop.timer(self._delay)
        self._timers.add(timer)
        timer.start(self._end, timer, done)
        return True

    def _end(self, timer: Any, done: Done) -> None:
        self._timers.discard(timer)
        timer.close()
        done(RIGHT, "1", self._clock())

    def sweep(self, now: float) -> None:
        self.sweeps += 1

    def close(self) -> None: ...


def lane_of(*payloads: Payload, **more: Any) -> Lane:
    """A lane to nowhere."""
    found = payloads or (Payload(b"body"),)
    return Lane("lane", LaneProtocol.HTTP_JSON, "127.0.0.1:1", "/", found, **more)


def sequence_lane(length: int) -> Lane:
    """A lane with sequences of so many calls; bodies are a word and the id."""
    marker = sequence_marker(LaneProtocol.HTTP_JSON)
    bodies = {word: word.encode() + b" " + marker for word in ("first", "last", "only")}
    return lane_of(Payload(b"go " + marker, **bodies), sequences=Sequences(length, marker))


def drive(plan: LoadPlan, *senders: Sender, worker: int = 0, workers: int = 1) -> Record:
    """Run a plan in real time."""
    record = Record()
    run_plan(plan, senders, worker=worker, workers=workers, tell=record.add, clock=time.monotonic)
    return record


def record_of(recorder: WindowRecorder) -> Record:
    """All that it has recorded."""
    record = Record()
    for second, window in recorder.fold():
        record.add(second, window)
    return record


def calls_of(
    lane: Lane, sender: Sender, recorder: WindowRecorder, *, number: int = 0, **more: Any
) -> LaneCalls:
    """The calls of a lane."""
    more = {"identities": itertools.count(), "from_start": False, "clock": Clock()} | more
    return LaneCalls(number, lane, sender=sender, recorder=recorder, **more)


class LoopBench:
    """A loop over one lane, whose clock and answers a test decides."""

    loop: OpenLoop | ClosedLoop

    def __init__(self, seconds: float, *, lane: Lane | None, most: int, from_start: bool) -> None:
        self.clock = Clock()
        self.sender = ScriptedSender(self.clock, most=most)
        self.recorder = WindowRecorder(0.0, seconds)
        self.calls = calls_of(
            lane or lane_of(), self.sender, self.recorder, from_start=from_start, clock=self.clock
        )

    def wake(self, now: float) -> float:
        self.clock.now = now
        return self.loop.wake(now)

    def starts(self) -> list[float]:
        return [each.at for each in self.sender.sent]
