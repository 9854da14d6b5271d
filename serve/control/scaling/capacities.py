"""Capacities: how many calls per second one replica of a pool bears of a model.

    μ(version) = rows per second, learned from executions    `capacity/scaling/replica_capacity.py`
    1 ÷ μ(model) = Σ share(version) · rows per call ÷ μ(version)

So versions count by the calls that they get: it is the time of a replica that a mean call takes. An
ensemble takes the time of all its parts, among which the objective is divided evenly. What a model
has borne is remembered for as long as it is run in the same way, also while nobody calls it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from serve.capacity.scaling.replica_capacity import Learned
from serve.control.batching.observer import BatchingObserver, ObservationRound, Slot
from serve.control.batching.steps import NEWEST
from serve.control.scaling.setups import SetUp, Setups
from serve.triton.model_counters import NOTHING, Counters, total

LASTING = 60.0  # seconds over which calls are counted
NO_LIMIT = 1.0  # seconds, where a model has no objective; as the policy has it
_REMEMBERED = 7200.0  # seconds for which a capacity holds that nothing new is known of
_SHARE_OUTSIDE = 0.25  # of the objective, at most, is left to what no replica can mend
_DEEPEST = 8  # ensembles within ensembles
_UNKNOWN = SetUp()


@dataclass(slots=True)
class _Known:
    """Of one version in one pool. `rows` of a call, and rows per second that were last known."""

    learned: Learned
    setup: SetUp
    rows: float = 1.0
    last: float | None = None
    at: float = 0.0
    shortest: float | None = None  # seconds of an execution


class Capacities:
    """Learned per pool and version. Whoever decides tells once a round who is there."""

    def __init__(self, observer: BatchingObserver, setups: Setups) -> None:
        self._observer = observer
        self._setups = setups
        self._known: dict[tuple[str, Slot], _Known] = {}
        self._fed: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Capacities {len(self._known)}>"

    def learn(self, pool: str, replicas: Collection[str], now: float) -> Mapping[Slot, Counters]:
        """Take in what they did since the last time; gives what they did in the last minute."""
        minute: dict[Slot, list[Counters]] = {}
        for name in replicas:
            fed = self._fed.get(name, now - LASTING)
            for one in self._observer.rounds(name, now - LASTING):
                for slot, risen in one.risen.items():
                    minute.setdefault(slot, []).append(risen)
                if one.at > fed:
                    self._feed(pool, one)
                    self._fed[name] = one.at
        done = {slot: total(parts) for slot, parts in minute.items()}
        for slot, counted in done.items():
            if counted.calls and counted.rows:
                self._of(pool, slot).rows = counted.rows / counted.calls
        return done

    def forget(self, replicas: Collection[str], pools: Collection[str]) -> None:
        """Only these are there still."""
        self._fed = {name: at for name, at in self._fed.items() if name in replicas}
        self._known = {key: one for key, one in self._known.items() if key[0] in pools}

    def of(
        self,
        pool: str,
        slots: Collection[Slot],
        done: Mapping[Slot, Counters],
        *,
        limit: float | None,
        outside: float,
        now: float,
    ) -> float | None:
        """Calls per second of one replica, for these versions of a model; None where unknown.

        `outside`: seconds that a call takes besides Triton.
        """
        most = NO_LIMIT if limit is None else limit
        outside = min(outside, _SHARE_OUTSIDE * most)
        weights = {slot: float(done.get(slot, NOTHING).calls) for slot in slots}
        if not any(weights.values()):
            weights = dict.fromkeys(slots, 1.0)
        calls = seconds = 0.0
        for slot, weight in weights.items():
            each = self._seconds(pool, slot, most, outside, now, 0)
            if weight and each is not None:
                calls += weight
                seconds += weight * each
        return calls / seconds if seconds else None

    def is_too_slow(
        self, pool: str, slots: Collection[Slot], *, limit: float | None, outside: float
    ) -> bool:
        """Whether a replica that is hardly called misses the objective of any of these versions.

        That is, where a call waits for one smallest execution, and is in the next.
        """
        if limit is None:
            return False
        outside = min(outside, _SHARE_OUTSIDE * limit)
        found = [self._shortest(pool, slot, 0) for slot in slots]
        return any(2 * one + outside > limit for one in found if one is not None)

    def _shortest(self, pool: str, slot: Slot, depth: int) -> float | None:
        """Seconds of an execution, of all steps of an ensemble together."""
        setup = self._setups.of(pool, slot[0])
        if setup is not None and setup.parts and depth <= _DEEPEST:
            parts = [self._part(pool, part) for part in setup.parts]
            each = [self._shortest(pool, part, depth + 1) for part in parts]
            return sum(one for one in each if one is not None) or None
        known = self._known.get((pool, slot))
        return None if known is None else known.shortest

    def _seconds(
        self, pool: str, slot: Slot, limit: float, outside: float, now: float, depth: int
    ) -> float | None:
        """Of a whole replica, that a call takes."""
        setup = self._setups.of(pool, slot[0])
        known = self._known.get((pool, slot))
        if setup is None or depth > _DEEPEST:
            return None
        if setup.parts:
            limit, outside = limit / len(setup.parts), outside / len(setup.parts)
            each = [
                self._seconds(pool, self._part(pool, part), limit, outside, now, depth + 1)
                for part in setup.parts
            ]
            sure = [one for one in each if one is not None]
            return sum(sure) if len(sure) == len(each) else None
        if known is None:
            return None
        _fit(known, setup)
        known.learned.limit, known.learned.overhead = limit, outside
        known.shortest = known.learned.shortest(now) or known.shortest
        found = known.learned.capacity(now)
        if found:
            known.last, known.at = found, now
        elif known.last and now - known.at < _REMEMBERED:
            found = known.last
        return known.rows / found if found else None

    def _part(self, pool: str, part: tuple[str, int]) -> Slot:
        """What a step of an ensemble calls: a number, or the newest that was executed here."""
        name, version = part
        numbers = [slot[1] for where, slot in self._known if where == pool and slot[0] == name]
        return name, max(numbers, default=1) if version == NEWEST else version

    def _feed(self, pool: str, one: ObservationRound) -> None:
        for slot, risen in one.risen.items():
            known = self._of(pool, slot)
            known.learned.add(_executed(risen), one.at)
            waiting = one.waited.get(slot, 0) * known.rows
            known.learned.saturated(risen.rows / one.seconds, waiting, one.at)

    def _of(self, pool: str, slot: Slot) -> _Known:
        """What is known of a version; nothing, where it is run in another way than before."""
        setup = self._setups.of(pool, slot[0]) or _UNKNOWN
        known = self._known.get((pool, slot))
        if known is None or (setup is not _UNKNOWN and known.setup not in (setup, _UNKNOWN)):
            learned = Learned(NO_LIMIT, instances=setup.instances, largest=setup.largest)
            known = self._known[pool, slot] = _Known(learned, setup)
        _fit(known, setup)
        return known


def _fit(known: _Known, setup: SetUp) -> None:
    """An execution holds one call, unless calls are put together."""
    if setup is not _UNKNOWN:
        known.setup = setup
    largest = known.setup.largest if known.setup.batches else round(known.rows)
    known.learned.instances = known.setup.instances
    known.learned.largest = max(1, largest)


def _executed(risen: Counters) -> Mapping[int, tuple[int, float]]:
    """Executions by rows, and the seconds of all; where a backend tells no sizes, the mean of all.

    Every call is charged the whole execution that it is part of.
    """
    if risen.sizes:
        return {rows: (size.count, size.ns / 1e9) for rows, size in risen.sizes.items()}
    calls = risen.calls - risen.hits
    if calls <= 0 or not risen.executions:
        return {}
    rows = max(1, round(risen.rows / risen.executions))
    return {rows: (risen.executions, risen.executions * risen.compute / calls / 1e9)}
