"""Adding golden cases to a published version: answers that people have looked at and know right."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from serve.control.added_cases import CONTRACT, Added, added_case, added_of
from serve.control.artifacts.contents import Contents
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.models import By
from serve.control.storage.store import Store, StoreEdit
from serve.control.versions import PublishedVersion
from serve.core.errors import Conflict, NotFound
from serve.core.versions import VersionFile, VersionState
from serve.tensors.contracts import MOST_BYTES, MOST_CASES, Case, write_contract


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """One case of a version. `id` of one that came with it is its place; `author` is who added it,
    or pushed the version, and `at` when.
    """

    id: str
    added: bool
    author: str
    at: float
    case: Case


class AddedCases:
    """The commands and questions about the contract of published versions.

    `refuses` asks a version for a case and says why its answer is not the expected one, or empty.
    Who holds `collecting` keeps garbage collection from taking blobs that no decision names yet.
    """

    def __init__(
        self,
        store: Store,
        storage: ArtifactStorage,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
        refuses: Callable[[PublishedVersion, Case], Awaitable[str]],
        collecting: asyncio.Lock,
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._storage = storage
        self._decisions = decisions
        self._reload = reload
        self._refuses = refuses
        self._collecting = collecting
        self._wall = wall

    def __repr__(self) -> str:
        return f"<AddedCases in {self._storage!r}>"

    async def all(self, version: PublishedVersion) -> tuple[Listed, ...]:
        """Every case: those that came with the version, then those that were added."""
        found = []
        if version.has_contract:
            manifest = await self._storage.manifest(version.model, version.number)
            own = await Contents(self._storage).contract(manifest.layout)
            who = version.provenance
            found = [
                Listed(str(number), False, who.author, who.at, case)
                for number, case in enumerate(own.cases if own else ())
            ]
        for one in added_of(self._decisions(), version):
            case = await added_case(self._storage, one)
            found.append(Listed(one.id, True, one.author, one.at, case))
        return tuple(found)

    async def add(self, version: PublishedVersion, case: Case, by: By) -> Listed:
        """Add a case that the version passes right now; the same again is no mistake.

        `Conflict` when it does not, or when the version cannot be asked.
        """
        self._require_published(version)
        why = await self._refuses(version, case)
        if why:
            raise Conflict(
                f"version {version.number} of model '{version.model}' does not pass this case",
                why=why,
                try_this="set a tolerance (atol, rtol) if the result is close enough",
            )
        contents = await asyncio.to_thread(write_contract, [case])
        async with self._collecting:
            files = [
                VersionFile(path, *await self._storage.add_bytes(b)) for path, b in contents.items()
            ]
            digests = "\n".join(sorted(file.sha256 for file in files))
            identity = hashlib.sha256(digests.encode()).hexdigest()[:12]
            added = Added(identity, case.name, by.author, self._wall(), tuple(sorted(files)))
            present = added_of(self._decisions(), version)
            known = next((one for one in present if one.id == identity), None)
            if known is None:
                _require_room(present, added)
                await self._write(version, (*present, added), by)
        told = known or added
        return Listed(told.id, True, told.author, told.at, case)

    async def remove(self, version: PublishedVersion, identity: str, by: By) -> None:
        """Take an added case away; `NotFound`, `Conflict` for one that came with the version."""
        async with self._collecting:
            present = added_of(self._decisions(), version)
            left = tuple(one for one in present if one.id != identity)
            if left == present:
                self._refuse_removal(version, identity)
            await self._write(version, left, by)

    def _refuse_removal(self, version: PublishedVersion, identity: str) -> None:
        if version.has_contract and identity.isdecimal() and len(identity) < 4:
            raise Conflict(
                f"case {identity} of version {version.number} of model '{version.model}' "
                "cannot be removed",
                why="it is part of the published version, which never changes",
                try_this="push a version with another contract",
            )
        raise NotFound(
            f"version {version.number} of model '{version.model}' has no case '{identity[:40]}'"
        )

    def _require_published(self, version: PublishedVersion) -> None:
        if version.state is not VersionState.PUBLISHED:
            raise Conflict(
                f"golden cases cannot be added to version {version.number} of model "
                f"'{version.model}'",
                why=f"its state is '{version.state.value}', not 'published'",
            )

    async def _write(self, version: PublishedVersion, cases: tuple[Added, ...], by: By) -> None:
        body = {"cases": [one.to_body() for one in cases]} if cases else None
        seen = self._decisions().entry(CONTRACT, version.key).etag
        change = StoreEdit(CONTRACT, version.key, body, by.author, by.reason, by.if_match or seen)
        await self._store.apply(change)
        await self._reload()


def _require_room(present: tuple[Added, ...], added: Added) -> None:
    if len(present) >= MOST_CASES:
        raise Conflict(
            "no more golden cases can be added", why=f"a version can have {MOST_CASES} added cases"
        )
    if sum(one.size for one in (*present, added)) > MOST_BYTES:
        raise Conflict(f"the added cases would exceed {MOST_BYTES >> 20} MiB in total")
