"""A rollout: one replica after the other gets a changed configuration, and somebody waits for it.

The reconciler does the work (`control/reconciling/`): the first replica finds out for the others
whether the configuration is good. This only looks on, and says why it cannot become so.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from serve.control.fleet import Fleet
from serve.control.observations import FlavourChoice, LoadFailure
from serve.control.reconciliation.keepers import Keepers
from serve.control.reconciliation.reconciler import ReplicaKeeper

_ROUNDS = 4  # of a replica that may not load, until nobody waits for it any more
LENT = 60.0  # seconds that one which somebody else has is waited for, once all others are done


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How far a replica is with what is under a name in Triton, and why not further."""

    state: Literal["applied", "waiting", "loading", "failed"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Before:
    """What was so of a replica before the change."""

    rounds: int
    failure: LoadFailure | None
    choice: FlavourChoice | None
    wrong: Mapping[int, str]


_UNKNOWN = _Before(0, None, None, MappingProxyType({}))


class Rollouts:
    """Looks at all replicas. `clock` is monotonic."""

    def __init__(self, keepers: Keepers, fleet: Fleet, *, clock: Callable[[], float]) -> None:
        self._keepers = keepers
        self._fleet = fleet
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()
        keepers.after_rounds(self._tell)

    def __repr__(self) -> str:
        return f"<Rollouts to {len(self._keepers)} replicas>"

    def concerned(self, name: str) -> list[ReplicaKeeper]:
        """The replicas that answer and should hold what is under this name in Triton."""
        there = (one for one in self._keepers if self._fleet.is_present(one.name))
        return [one for one in there if one.serves(name)]

    def states(self, name: str) -> Mapping[str, ReplicaState]:
        """How far each of them is."""
        return {one.name: self._state(one, name) for one in self.concerned(name)}

    def _state(self, keeper: ReplicaKeeper, name: str) -> ReplicaState:
        if keeper.is_as_wanted(name):
            return ReplicaState("applied")
        why = keeper.problem(name)
        if why:
            return ReplicaState("failed", why)
        if keeper.name in self._fleet.waiting:
            return ReplicaState("waiting", self._fleet.waiting[keeper.name])
        if keeper.name in self._fleet.steered | self._fleet.joining:
            return ReplicaState("loading")
        return ReplicaState("waiting")

    def begin(self, name: str) -> "Rollout":
        """Look at them before something is decided."""
        return Rollout(self, self._fleet, name, clock=self._clock)

    async def known(self) -> None:
        """Return when every replica was looked at."""
        while not self._fleet.is_known:
            await self.news(1.0)

    async def news(self, within: float) -> None:
        """Return when some replica has done a round, or after so many seconds."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with asyncio.timeout(within):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(event)

    def _tell(self) -> None:
        for event in self._waiting:
            event.set()


class Rollout:
    """One change of what is under a name in Triton."""

    def __init__(
        self, rollouts: Rollouts, fleet: Fleet, name: str, *, clock: Callable[[], float]
    ) -> None:
        self._rollouts = rollouts
        self._fleet = fleet
        self._name = name
        self._clock = clock
        self._before = {
            one.name: _Before(
                one.rounds,
                fleet.failures.get((one.name, name)),
                fleet.choice(one.name, name),
                fleet.wrong(one.name).get(name, {}),
            )
            for one in rollouts.concerned(name)
        }

    def __repr__(self) -> str:
        return f"<Rollout {self._name} {dict(self._rollouts.states(self._name))}>"

    async def reached(self, revision: str, within: float) -> str:
        """Wait until all that answer have this revision; empty then, else why they cannot."""
        end = self._clock() + within
        since: float | None = None  # when only such were left that somebody else has
        trying = ""
        while True:
            why = self.trouble(revision)
            lacking = [
                one
                for one in self._rollouts.concerned(self._name)
                if not one.is_as_wanted(self._name)
            ]
            if why or not lacking:
                return why
            before, trying = trying, self._fleet.tried_by(self._name, revision)
            if before and not trying:  # it is good: the next one need not wait for its round
                for one in lacking:
                    one.wake()
            if not all(self._is_lent(one, revision) for one in lacking):
                since = None
            elif since is None:
                since = self._clock()
            elif self._clock() > since + LENT:
                return ""
            if self._clock() > end:
                names = ", ".join(one.name for one in lacking)
                return f"it takes longer than {within:g} s on replica {names}"
            await self._rollouts.news(1.0)

    def trouble(self, revision: str) -> str:
        """Why some replica cannot have it, or is wrong with it; empty while nothing is known."""
        first = self._fleet.tried_by(self._name, revision)
        if first and not self._fleet.is_present(first):
            return f"replica {first} was lost during the load"
        for keeper in self._rollouts.concerned(self._name):
            why = self._failed(keeper.name)
            if why:
                return f"replica {keeper.name}: {why}"
        return self._refused()

    def _failed(self, replica: str) -> str:
        before = self._before.get(replica, _UNKNOWN)
        failure = self._fleet.failures.get((replica, self._name))
        if failure is not None and failure is not before.failure:
            return failure.reason
        wrong = self._fleet.wrong(replica).get(self._name, {})
        for number, why in sorted(wrong.items()):
            if before.wrong.get(number) != why:
                return f"version {number} returns wrong outputs: {why}"
        old, new = before.choice, self._fleet.choice(replica, self._name)
        if old is not None and new is not None and old.flavour in new.failed:
            return f"it cannot run as flavour '{old.flavour}': {new.failed[old.flavour]}"
        return ""

    def _refused(self) -> str:
        """Why none of those that lack it may load it."""
        lacking = [
            one for one in self._rollouts.concerned(self._name) if not one.is_as_wanted(self._name)
        ]
        held_up = [
            self._fleet.waiting[one.name]
            for one in lacking
            if one.name in self._fleet.waiting and self._rounds(one) >= _ROUNDS
        ]
        return held_up[0] if lacking and len(held_up) == len(lacking) else ""

    def _rounds(self, keeper: ReplicaKeeper) -> int:
        return keeper.rounds - self._before.get(keeper.name, _UNKNOWN).rounds

    def _is_lent(self, keeper: ReplicaKeeper, revision: str) -> bool:
        """Whether it does nothing because somebody else has it."""
        is_busy = self._fleet.tried_by(self._name, revision) == keeper.name
        return not is_busy and not self._rounds(keeper) and keeper.name in self._fleet.steered
