"""The desk of those who try versions: tries, examples, snippets, and what becomes a golden case."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from serve.control.fleet import Fleet
from serve.control.gateway import GatewayClient
from serve.control.models import By, Models
from serve.control.tries.golden_cases import AddedCases, Listed
from serve.control.tries.messages import archive, unpack
from serve.control.tries.records import Try, TrySide
from serve.control.tries.requests import Offered, TryRequest
from serve.control.tries.snippets import GatewayPorts, Sent, Snippet, snippets
from serve.control.tries.tries import Tries
from serve.control.tries.versions import TriedVersions
from serve.control.versions import PublishedVersion
from serve.core.errors import Conflict, NotFound, Unavailable, VersionNotReady
from serve.core.replicas import Replica
from serve.tensors.contracts import Case, Contract
from serve.tensors.datatypes import BF16
from serve.tensors.expected_outputs import Tolerance
from serve.tensors.metadata import Metadata

MOST_DISAGREEMENTS = 50
MIRROR = "mirror"  # the author of runs that no person made
Judge = Callable[[Replica, PublishedVersion, Contract], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class ContractState:
    """The contract of a version. `replicas`: empty where its answers are right as far as is known,
    else what is wrong there.
    """

    replicas: Mapping[str, str]
    cases: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class Takes:
    """What may be given: inputs and outputs, and how raw input becomes tensors, where recorded.

    `optional`: the inputs that may be left out.
    """

    metadata: Metadata
    preprocessing: Mapping[str, Any]
    optional: frozenset[str] = frozenset()


class Witnesses:
    """Asks every replica that may be called for a version whether a case holds there."""

    def __init__(self, models: Models, fleet: Fleet, judge: Judge) -> None:
        self._models = models
        self._fleet = fleet
        self._judge = judge

    def __repr__(self) -> str:
        return f"<Witnesses of {self._fleet!r}>"

    async def refuses(self, version: PublishedVersion, case: Case) -> str:
        """Why it does not hold, or empty; `VersionNotReady` when nobody can be asked."""
        asked, why = 0, "no replica is ready"
        for name in self._models.version(version.model, version.number).replicas:
            seen = self._fleet.observations.get(name)
            if seen is None:
                continue  # it has left meanwhile
            try:
                wrong = await self._judge(seen.replica, version, Contract((case,)))
            except Unavailable as error:
                why = str(error)
                continue
            asked += 1
            if wrong:
                return f"replica {name}: {wrong}"
        if not asked:
            raise VersionNotReady(version.model, version.number, why)
        return ""

    def results(self, version: PublishedVersion) -> Mapping[str, str]:
        """By replica that holds it, what was wrong when its contract was run last."""
        found = dict.fromkeys(self._models.version(version.model, version.number).replicas, "")
        for name in self._fleet.observations:
            why = self._fleet.wrong(name).get(version.physical, {}).get(version.number)
            if why:
                found[name] = why
        return found


class TryDesk:
    """What the admin API and the pages work on."""

    def __init__(
        self,
        tries: Tries,
        versions: TriedVersions,
        added: AddedCases,
        witnesses: Witnesses,
        gateway: GatewayClient,
    ) -> None:
        self.tries = tries
        self.shelf = tries.shelf
        self.examples = tries.examples
        self._versions = versions
        self._added = added
        self._witnesses = witnesses
        self._gateway = gateway
        self._disagreements: dict[tuple[str, int, int], int] = {}

    def __repr__(self) -> str:
        return f"<TryDesk {self.tries!r}>"

    async def keep_disagreement(self, model: str, a: int, b: int, inputs: bytes) -> None:
        """Call both versions with the inputs of a mirrored call (an NPZ file), and keep the run.

        Of each pair of versions only the first `MOST_DISAGREEMENTS` since the start, so that they
        do not displace the runs of people.
        """
        key = (model, a, b)
        if self._disagreements.get(key, 0) >= MOST_DISAGREEMENTS:
            return
        given = {"": Offered("npz", inputs, "mirrored call")}
        await self.tries.make(TryRequest(model, str(a), given, b=str(b)), MIRROR)
        self._disagreements[key] = self._disagreements.get(key, 0) + 1

    async def takes(self, model: str, selector: str) -> Takes:
        """What a version, a label or whatever is routed to takes and gives now."""
        metadata = await self._gateway.metadata(model, selector)
        candidates = self._versions.candidates(model, selector)
        number = candidates[0] if candidates else None
        recorded = self._versions.of(model, number)
        return Takes(metadata, recorded.preprocessing, recorded.optional)

    async def snippets(
        self, identity: str, side: str, *, admin: str, admin_shows_key: bool
    ) -> list[Snippet]:
        """How to send the same from elsewhere; `admin` is the admin API's URL for those people."""
        one = await self.shelf.get(identity)
        packed = await self.shelf.inputs(identity, side)
        tensors, datatypes = await asyncio.to_thread(unpack, packed)
        reach = GatewayPorts.through(
            self._gateway.place,
            admin,
            shows_key=self._gateway.shows_key,
            admin_shows_key=admin_shows_key,
        )
        sent = Sent(tensors, datatypes, packed)
        return await asyncio.to_thread(snippets, one, side_of(one, side), sent, reach)

    async def save(
        self, identity: str, side: str, name: str, tolerance: Tolerance, by: By
    ) -> tuple[PublishedVersion, Listed]:
        """Make a side's answer a golden case of the version that gave it; `Conflict`."""
        one = await self.shelf.get(identity)
        shown = side_of(one, side)
        if shown.error is not None or not shown.version.isdigit():
            raise Conflict(
                f"side '{side}' of run '{identity}' cannot become a golden case",
                why="it has no result",
            )
        version = self._versions.published(one.model, int(shown.version))
        inputs, datatypes = unpack(await self.shelf.inputs(identity, side))
        outputs, _ = await self.shelf.outputs(identity, side)
        unsaid = {key: BF16 for key, datatype in datatypes.items() if datatype == BF16}
        case = Case(inputs, outputs, name, tolerance, datatypes=unsaid)
        return version, await self._added.add(version, case, by)

    async def contract(self, model: str, number: int) -> ContractState:
        """The golden cases of a published version."""
        version = self._versions.published(model, number)
        return ContractState(self._witnesses.results(version), await self._added.all(version))

    async def forget_case(self, model: str, number: int, case: str, by: By) -> None:
        """Take an added case away."""
        await self._added.remove(self._versions.published(model, number), case, by)

    async def row(self, identity: str) -> tuple[bytes, str]:
        """What people gave and a file's name for it; else the tensors of side A, as an archive."""
        given = await self.shelf.given(identity)
        if given is not None:
            return given
        tensors, _ = unpack(await self.shelf.inputs(identity, "a"))
        return await asyncio.to_thread(archive, tensors), f"{identity}.npz"


def side_of(one: Try, side: str) -> TrySide:
    """One side of a try; `NotFound`."""
    for each in one.sides:
        if each.side == side:
            return each
    raise NotFound(f"run '{one.id}' has no side '{side[:10]}'")
