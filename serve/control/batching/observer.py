"""The observer: what each replica's Triton has counted of every version, reading by reading.

Replicas are asked one by one, not through the gateway: its sums have no past of a single replica,
and a replica that was loaded anew is only seen by itself. A replica that is steered around is
passed over: what it counts then is a measurement, or a model that warms up, not what callers ask.

| between two readings of a replica        | counts                                               |
|------------------------------------------|------------------------------------------------------|
| a counter of a version fell              | all it says: it was loaded anew; what was before it  |
|                                          | is forgotten, for it may have been configured else   |
| a version is there for the first time    | all it says                                          |
| the replica did not answer               | the rise since it last did                           |
| the replica was steered around           | nothing                                              |
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serve.control.batching.windows import CountWindow
from serve.control.fleet import Fleet
from serve.core.errors import TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.triton.metrics import ModelReading, ReplicaScrape
from serve.triton.model_counters import Counters, total

KEPT = 300.0  # seconds of history
FRESH = 60.0  # seconds for which what is so now is told
AT_ONCE = 32  # replicas that are asked at one time; more would be late with their answers
LARGE = 500  # replicas, up to which all are asked whenever somebody wants to know
PER_SECOND = 100.0  # replicas of a larger fleet: what they tell takes a while to be read
_log = logging.getLogger("servegate.batching")
_UNREAD = ModelReading(0, 0, 0, 0, 0, 0.0, 0.0)

Slot = tuple[str, int]  # a name in Triton, a version
Counted = Mapping[Slot, Counters]


class ReplicaReader(Protocol):
    """Who asks replicas."""

    async def counters(self, replica: Replica) -> Counted:
        """What a replica has counted; `Unavailable` or `TritonFailed` when it does not tell."""

    async def readings(self, replica: Replica) -> ReplicaScrape | None:
        """Its own metrics; None when it does not tell."""


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """What a replica said at a time."""

    at: float
    counters: Counted
    readings: ReplicaScrape | None


@dataclass(frozen=True, slots=True)
class ObservationRound:
    """What rose between two readings of a replica.

    `waited`: calls that waited at its beginning and at its end, the fewer of both; only where some
    did. `fell` says that something there was loaded anew, or the replica was started anew.
    """

    at: float
    seconds: float
    risen: Counted
    cpu: float | None
    gpu: float | None
    waited: Mapping[Slot, int] = field(default_factory=dict)
    fell: bool = False


@dataclass(slots=True)
class _History:
    """Of one replica. `fresh` is when what a version did began to count.

    `heard` is when the replica answered last, be it that it is passed over.
    """

    replica: Replica
    before: ReplicaCounts | None = None
    heard: float | None = None
    is_passed_over: bool = False
    rounds: deque[ObservationRound] = field(default_factory=deque)
    fresh: dict[Slot, float] = field(default_factory=dict)


class BatchingObserver:
    """Reads, and keeps the last five minutes of what was called. `clock`: monotonic seconds."""

    def __init__(self, fleet: Fleet, telling: ReplicaReader, *, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._telling = telling
        self._clock = clock
        self._histories: dict[str, _History] = {}

    def __repr__(self) -> str:
        rounds = sum(len(one.rounds) for one in self._histories.values())
        return f"<BatchingObserver replicas={len(self._histories)} rounds={rounds}>"

    @property
    def pause(self) -> float:
        """Seconds between two rounds, at least: a large fleet is asked more rarely."""
        replicas = len(self._fleet.observations)
        return replicas / PER_SECOND if replicas > LARGE else 0.0

    async def observe(self) -> None:
        """One round: ask every replica now."""
        seen = dict(self._fleet.observations)
        for name in self._histories.keys() - seen.keys():
            del self._histories[name]
        up = [one.replica for one in seen.values() if one.is_up]
        free = asyncio.Semaphore(AT_ONCE)
        told = await asyncio.gather(*(self._ask(replica, free) for replica in up))
        for replica, answer in zip(up, told, strict=True):
            history = self._histories.get(replica.name)
            if history is None or history.replica != replica:
                history = self._histories[replica.name] = _History(replica)
            if answer is not None:
                history.heard = answer.at
            if not self._fleet.is_free(replica.name):
                history.is_passed_over = True
            elif answer is not None:
                _add(history, answer)
        oldest = self._clock() - KEPT
        for history in self._histories.values():
            while history.rounds and history.rounds[0].at <= oldest:
                history.rounds.popleft()

    @property
    def has_begun(self) -> bool:
        """Whether there is a first reading of every replica that answers, and one does."""
        up = [name for name, one in self._fleet.observations.items() if one.is_up]
        read = {name for name, one in self._histories.items() if one.before is not None}
        return bool(up) and read.issuperset(up)

    def window(self, name: str, version: int) -> CountWindow:
        """What a version has done, over all replicas; an empty one where nothing is known."""
        slot, replicas = (name, version), {}
        risen: list[Counters] = []
        cpu, gpu = [], []
        for replica, history in self._histories.items():
            rounds = tuple(_rounds(history, slot))
            if not rounds:
                continue
            replicas[replica] = sum(one.seconds for one in rounds)
            for one in rounds:
                risen += [one.risen[slot]] if slot in one.risen else []
                cpu += [] if one.cpu is None else [one.cpu]
                gpu += [] if one.gpu is None else [one.gpu]
        now = self._clock() - FRESH
        newest = (one.before for one in self._histories.values())
        pending = sum(_reading(one, slot).pending for one in newest if one and one.at > now)
        return CountWindow(total(risen), replicas, pending, _mean(cpu), _mean(gpu))

    def newest(self, replica: str) -> ReplicaCounts | None:
        """What a replica said last, while it was not passed over; None before that."""
        history = self._histories.get(replica)
        return None if history is None else history.before

    def heard(self, replica: str) -> float | None:
        """When a replica answered last; None before it does."""
        history = self._histories.get(replica)
        return None if history is None else history.heard

    def rounds(self, replica: str, after: float) -> tuple[ObservationRound, ...]:
        """What a replica did after a time, oldest first; five minutes at most."""
        history = self._histories.get(replica)
        if history is None:
            return ()
        newer = itertools.takewhile(lambda one: one.at > after, reversed(history.rounds))
        return tuple(newer)[::-1]

    async def _ask(self, replica: Replica, free: asyncio.Semaphore) -> ReplicaCounts | None:
        async with free:
            counters, readings = await asyncio.gather(
                self._counters(replica), self._telling.readings(replica)
            )
        return None if counters is None else ReplicaCounts(self._clock(), counters, readings)

    async def _counters(self, replica: Replica) -> Counted | None:
        try:
            return await self._telling.counters(replica)
        except (Unavailable, TritonFailed) as error:
            _log.debug("%s returns no statistics: %s", replica.name, error)
            return None


def _add(history: _History, now: ReplicaCounts) -> None:
    before, history.before = history.before, now
    passed, history.is_passed_over = history.is_passed_over, False
    if before is None or now.at <= before.at:
        history.fresh = dict.fromkeys(now.counters, now.at)
        return
    risen: dict[Slot, Counters] = {}
    fell = False
    for slot, counters in now.counters.items():
        was = before.counters.get(slot)
        rise = counters if was is None else counters.since(was)
        if was is None or rise is counters:
            history.fresh[slot] = now.at if passed else before.at
        fell = fell or (was is not None and rise is counters)
        if not rise.is_idle:
            risen[slot] = rise
    history.fresh = {slot: at for slot, at in history.fresh.items() if slot in now.counters}
    if not passed:
        gpus = [one.utilization for one in now.readings.gpus.values()] if now.readings else []
        known = [one for one in gpus if one is not None]
        cpu = now.readings.cpu_utilization if now.readings else None
        seconds = now.at - before.at
        gpu, waited = max(known, default=None), dict(_waited(before, now))
        history.rounds.append(ObservationRound(now.at, seconds, risen, cpu, gpu, waited, fell))


def _waited(before: ReplicaCounts, now: ReplicaCounts) -> Iterator[tuple[Slot, int]]:
    for slot, reading in now.readings.models.items() if now.readings else ():
        fewer = min(reading.pending, _reading(before, slot).pending)
        if fewer > 0:
            yield slot, fewer


def _rounds(history: _History, slot: Slot) -> Iterator[ObservationRound]:
    """Those in which a version was there as it is now."""
    fresh = history.fresh.get(slot)
    if fresh is not None:
        yield from (one for one in history.rounds if one.at > fresh)


def _reading(told: ReplicaCounts | None, slot: Slot) -> ModelReading:
    if told is None or told.readings is None:
        return _UNREAD
    return told.readings.models.get(slot, _UNREAD)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
