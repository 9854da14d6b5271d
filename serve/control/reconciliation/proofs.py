"""Proving: on each replica, a version is called only once it is known to answer as it should.

| a version on a replica         | calls | ends when                                               |
|--------------------------------|-------|---------------------------------------------------------|
| is being loaded                | none  | its contract was run after the load, however that ended |
| was proven                     | come  | its contract fails there, whenever that is run          |
| was loaded anew, and nobody    | come  | the same                                                |
| else could be called           |       |                                                         |
| answers wrongly                | none  | it was loaded anew and proven, or is right again        |
| was there when control started | come  | its contract fails there                                |
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from serve.control.decisions import Decisions
from serve.control.fleet import LOADING, Fleet
from serve.control.reconciliation.plan import Load
from serve.control.snapshots import Publisher
from serve.control.versions import PublishedVersion
from serve.core.errors import ServegateError, Unavailable
from serve.core.replicas import Replica
from serve.processes.failpoints import reach

_log = logging.getLogger("servegate.proving")


class Proof(Protocol):
    """Finds out whether a version answers as it should; see `contracts.py`."""

    async def warm(self, replica: Replica, version: PublishedVersion) -> None:
        """Call it a few times, so that the first caller does not wait for lazy set-up."""

    async def verify(self, replica: Replica, version: PublishedVersion) -> str:
        """Run its contract: empty when all is right, else what is wrong."""


class Proving:
    """What may be called on one replica."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        publisher: Publisher,
        *,
        proof: Proof,
        decisions: Callable[[], Decisions],
    ) -> None:
        self._name = name
        self._fleet = fleet
        self._publisher = publisher
        self._proof = proof
        self._decisions = decisions
        self._alone: dict[str, frozenset[int]] = {}  # by name: called, and not proven yet

    def __repr__(self) -> str:
        return f"<Proving {self._name} wrong={dict(self._fleet.wrong(self._name))}>"

    def begin(self, step: Load, *, anew: bool = False) -> None:
        """What this load brings, or brings anew, is called by nobody for now.

        With `anew` it has brought all versions anew, in another form: until then those that were
        there went on as they were. They still do where nobody else could be called instead.
        """
        name = step.model.name
        held = self._fleet.observations[self._name].held.get(name, ())
        new = [v for v in step.versions if anew or v not in held or v in step.wrong]
        alone = [v for v in new if anew and v in held and self._is_alone(name, v)]
        self._alone[name] = self._alone.get(name, frozenset()) | frozenset(alone)
        self._fleet.bar(self._name, name, [v for v in new if v not in alone], LOADING)

    @property
    def called(self) -> frozenset[str]:
        """The names in Triton under which something is called that is not proven yet."""
        return frozenset(name for name, numbers in self._alone.items() if numbers)

    def _is_alone(self, name: str, number: int) -> bool:
        """Whether calls for a version that was proven would find no other replica."""
        if number in self._fleet.wrong(self._name).get(name, {}):
            return False
        if number in self._fleet.loading(self._name, name):
            return False
        return not any(
            self._fleet.can_be_called(other, name, number)
            for other in self._fleet.observations
            if other != self._name
        )

    async def prove(self, name: str, model: str) -> Mapping[int, str]:
        """Admit what was loaded under a name and is right; gives what is not, and why.

        `Unavailable`: that cannot be found out now; what is left goes on waiting for it.
        """
        seen = self._fleet.observations[self._name]
        records = self._decisions().versions.get(model, {})
        wrong: dict[int, str] = {}
        for number in sorted({*self._fleet.loading(self._name, name), *self._alone.get(name, ())}):
            if number not in seen.held.get(name, ()):
                continue  # Triton has refused it, or will have it later
            version = records.get(number)
            why = await self._verify(seen.replica, version) if version else ""
            if why:
                wrong[number] = why
                self._fleet.bar(self._name, name, [number], why)
            else:
                self._fleet.admit(self._name, name, number)
            self._alone[name] = self._alone.get(name, frozenset()) - {number}
        return wrong

    def forget(self, name: str, wanted: Collection[int]) -> None:
        """What was not loaded, and is not to be any more, needs no proof."""
        held = self._fleet.observations[self._name].held.get(name, ())
        self._alone[name] = self._alone.get(name, frozenset()) & frozenset(held)
        for number in self._fleet.loading(self._name, name):
            if number not in held and number not in wanted:
                self._fleet.admit(self._name, name, number)

    async def _verify(self, replica: Replica, version: PublishedVersion) -> str:
        try:
            await self._proof.warm(replica, version)
            why = await self._proof.verify(replica, version)
        except Unavailable:
            raise
        except ServegateError as error:  # such as a contract whose bytes are not what they were
            why = f"its contract cannot be run: {error}"
        reach("load.verified")
        return why

    async def found(self, version: PublishedVersion, why: str) -> bool:
        """Somebody has run the contract here; whether the version has to be loaded anew.

        `why` is empty when it is right, or right again.
        """
        barred = self._fleet.wrong(self._name).get(version.physical, {})
        if why and barred.get(version.number) != why:
            _log.warning(
                "replica %s returns wrong outputs for %s version %s: %s",
                *(self._name, version.model, version.number, why),
            )
            self._fleet.bar(self._name, version.physical, [version.number], why)
        elif not why and version.number in barred:
            self._fleet.admit(self._name, version.physical, version.number)
        await self._publisher.refresh()
        return bool(why) and version.number not in barred
