"""Delivering: what all ways of delivery share, and the folder that Tritons read."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from serve.control.deliveries.delivery import Slot
from serve.control.deliveries.repository import is_whole, present, slot_of, sweep, take_away
from serve.control.deliveries.version_folder import (
    BlobSource,
    check_config,
    materialise,
    to_the_end,
)
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid, ServegateError
from serve.core.versions import Manifest


class Manifests(Protocol):
    """Where the manifests are."""

    async def manifest(self, model: str, version: int) -> Manifest:
        """The manifest of a version; `NotFound` when it was never published or is removed."""


class DeliveryStorage(BlobSource, Manifests, Protocol):
    """What a delivery needs of the storage."""


@dataclass(frozen=True, slots=True)
class DeliveryPiece:
    """One version to be delivered: its manifest, and its canonical config.pbtxt."""

    manifest: Manifest
    config: str

    @property
    def slot(self) -> Slot:
        """Its physical name and number."""
        return slot_of(self.manifest)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {"manifest": self.manifest.to_bytes().decode(), "config": self.config}

    @classmethod
    def from_json(cls, data: Any) -> "DeliveryPiece":
        """Read what `to_json` gave; `Invalid` when it does not hold together."""
        try:
            piece = cls(Manifest.from_bytes(data["manifest"].encode()), str(data["config"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise Invalid("a wanted version is malformed", why=repr(error)) from error
        check_config(piece.manifest, piece.config)
        return piece


class DeliveryReader:
    """Turns version records into pieces. Manifests never change: each is read once."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._known: dict[tuple[str, int], Manifest] = {}

    def __repr__(self) -> str:
        return f"<DeliveryReader {len(self._known)} manifests known>"

    async def pieces(
        self, wanted: Collection[PublishedVersion]
    ) -> tuple[tuple[DeliveryPiece, ...], Mapping[Slot, str]]:
        """The pieces of all versions that can be read, and why the others cannot."""
        names = {(version.model, version.number) for version in wanted}
        self._known = {name: one for name, one in self._known.items() if name in names}
        found, problems = [], {}
        for version in wanted:
            try:
                found.append(await self._piece(version))
            except (ServegateError, OSError) as error:
                problems[place(version)] = str(error)
        return tuple(found), MappingProxyType(problems)

    async def _piece(self, version: PublishedVersion) -> DeliveryPiece:
        name = version.model, version.number
        manifest = self._known.get(name) or await self._manifests.manifest(*name)
        found = (manifest.model, manifest.version, manifest.physical)
        if found != (*name, version.physical):
            raise Invalid(f"the manifest of {version.key} does not match its record")
        self._known[name] = manifest
        return DeliveryPiece(manifest, version.config)


class Watcher:
    """Hears what becomes of each version; this one does not listen."""

    def begins(self, piece: DeliveryPiece) -> None:
        """A version that is missing is being fetched."""

    async def ended(self, slot: Slot) -> None:
        """It is whole now, or has failed: `slots` and `problems` say which."""

    def removed(self, slot: Slot) -> None:
        """A version has been taken away."""


_NOBODY = Watcher()


class RepositoryFolder:
    """A model repository on disk whose versions come and go, whole. One process writes to it."""

    def __init__(self, source: BlobSource, path: Path) -> None:
        self._source = source
        self._path = path
        self._turn = asyncio.Lock()
        self._swept = False
        self.slots: frozenset[Slot] = frozenset()  # what is whole, and was wanted
        self.problems: Mapping[Slot, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"<RepositoryFolder {self._path} {len(self.slots)} versions>"

    async def bring(
        self,
        pieces: Iterable[DeliveryPiece],
        keep: Collection[Slot],
        watcher: Watcher = _NOBODY,
    ) -> None:
        """Make the folder hold these pieces, and nothing else of ours but what is in `keep`."""
        async with self._turn:
            wanted = {piece.slot: piece for piece in pieces}
            known = wanted.keys() | set(keep)
            self.slots &= known
            self.problems = MappingProxyType({s: w for s, w in self.problems.items() if s in known})
            await self._clear(known, watcher)
            for slot, piece in wanted.items():
                await self._bring(slot, piece, watcher)

    async def _bring(self, slot: Slot, piece: DeliveryPiece, watcher: Watcher) -> None:
        if await asyncio.to_thread(is_whole, piece.manifest, piece.config, self._path):
            self._tell(slot, "")
            return
        self.slots -= {slot}
        watcher.begins(piece)
        try:
            await materialise(self._source, piece.manifest, piece.config, self._path)
        except (ServegateError, OSError) as error:
            self._tell(slot, str(error))
        else:
            self._tell(slot, "")
        await watcher.ended(slot)

    async def _clear(self, needed: Collection[Slot], watcher: Watcher) -> None:
        if not self._swept:
            self._path.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(sweep, self._path)
            self._swept = True
        for slot in sorted(await asyncio.to_thread(present, self._path)):
            if slot not in needed:
                await to_the_end(take_away, self._path, slot)
                watcher.removed(slot)

    def _tell(self, slot: Slot, problem: str) -> None:
        """An empty problem says that the version is whole."""
        others = {known: why for known, why in self.problems.items() if known != slot}
        self.problems = MappingProxyType({**others, slot: problem} if problem else others)
        self.slots = self.slots - {slot} if problem else self.slots | {slot}


class FolderDelivery:
    """One folder that every Triton reads: of this machine, or on a volume that all share."""

    def __init__(self, storage: DeliveryStorage, folder: Path) -> None:
        self._reading = DeliveryReader(storage)
        self._folder = RepositoryFolder(storage, folder)
        self._unread: Mapping[Slot, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"<FolderDelivery {self._folder!r}>"

    async def deliver(self, wanted: Collection[PublishedVersion], held: Collection[Slot]) -> None:
        """See `Delivery`."""
        pieces, self._unread = await self._reading.pieces(wanted)
        await self._folder.bring(pieces, {*held, *(place(version) for version in wanted)})

    def has(self, replica: str, version: PublishedVersion) -> bool:
        """See `Delivery`."""
        return place(version) in self._folder.slots

    def problem(self, replica: str, version: PublishedVersion) -> str:
        """See `Delivery`."""
        slot = place(version)
        return self._unread.get(slot) or self._folder.problems.get(slot, "")


def place(version: PublishedVersion) -> Slot:
    """Where a Triton finds the version."""
    return version.physical, version.number
