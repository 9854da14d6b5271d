"""Tries as they are kept.

tries/<id>/try.json               what is told of it
tries/<id>/inputs-a, inputs-b     what each side was sent; of b only where that differs
tries/<id>/outputs-a, outputs-b   what it answered
tries/<id>/picture-a-<digest>     PNG of an input, by the digest of its name
tries/<id>/given, given.json      what people gave, where that was one thing, and its name
tries/<id>/line.json              what a list shows, written last
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from serve.control.artifacts.objects import Objects
from serve.control.shelves import StorageShelf
from serve.control.tries.messages import Datatypes, Tensors, not_kept, unpack
from serve.control.tries.records import Try, TryLine, line_of
from serve.core.errors import NotFound

KEPT = 500
_FOLDER, _PAGE, _GIVEN, _ABOUT = "tries", "try.json", "given", "given.json"
_ID = re.compile(r"^[0-9a-f]{12,40}\Z")


@dataclass(frozen=True, slots=True)
class TryFiles:
    """The bytes beside a try. `inputs` and `outputs` by side, packed; pictures by side and input.

    `drawings` are pictures by side and output. `given` is what people gave and how they call it.
    """

    inputs: Mapping[str, bytes]
    outputs: Mapping[str, bytes]
    pictures: Mapping[tuple[str, str], bytes]
    drawings: Mapping[tuple[str, str], bytes]
    given: tuple[bytes, str] | None = field(default=None)


class TryShelf:
    """The tries in one storage; the newest `KEPT` stay. Ids are in the order of time."""

    def __init__(self, objects: Objects) -> None:
        self._shelf = StorageShelf(objects, _FOLDER, kept=KEPT)

    def __repr__(self) -> str:
        return f"<TryShelf on {self._shelf!r}>"

    async def keep(self, one: Try, parts: TryFiles) -> None:
        """Write all of it."""
        put = self._shelf.put
        for side, data in parts.inputs.items():
            await put(one.id, f"inputs-{side}", data)
        for side, data in parts.outputs.items():
            await put(one.id, f"outputs-{side}", data)
        for (side, name), data in parts.pictures.items():
            await put(one.id, _picture(side, name), data)
        for (side, name), data in parts.drawings.items():
            await put(one.id, _picture(f"out-{side}", name), data)
        if parts.given is not None:
            data, called = parts.given
            await put(one.id, _GIVEN, data)
            await put(one.id, _ABOUT, json.dumps({"name": called}).encode())
        await put(one.id, _PAGE, json.dumps(one.to_json()).encode())
        await self._shelf.show(one.id, asdict(line_of(one)))

    async def all(self, *, model: str, limit: int) -> list[TryLine]:
        """The newest first; of all models for an empty one."""
        lines: list[TryLine] = []
        for identity in sorted(await self._shelf.names(), reverse=True):
            if len(lines) == limit:
                break
            with contextlib.suppress(NotFound):  # removed a moment ago
                line = TryLine(**await self._shelf.line(identity))
                if model in ("", line.model):
                    lines.append(line)
        return lines

    async def get(self, identity: str) -> Try:
        """One try; `NotFound`."""
        if not _ID.match(identity):
            raise _unknown(identity)
        try:
            return Try.from_json(json.loads(await self._shelf.read(identity, _PAGE)))
        except NotFound as error:
            raise _unknown(identity) from error

    async def remove(self, identity: str) -> None:
        """Take a try away; `NotFound`."""
        await self.get(identity)
        await self._shelf.remove(identity)

    async def inputs(self, identity: str, side: str) -> bytes:
        """What a side was sent, packed; `NotFound`."""
        one = await self.get(identity)
        _require_side(one, side)
        for written in (side, "a", "b"):
            with contextlib.suppress(NotFound):
                return await self._shelf.read(identity, f"inputs-{written}")
        raise not_kept(f"the inputs of run '{identity}'")

    async def outputs(self, identity: str, side: str) -> tuple[Tensors, Datatypes]:
        """What a side answered; `NotFound`."""
        one = await self.get(identity)
        if _require_side(one, side):
            raise NotFound(f"side '{side}' of run '{identity}' has no result")
        try:
            return unpack(await self._shelf.read(identity, f"outputs-{side}"))
        except NotFound as error:
            raise not_kept(f"the outputs of run '{identity}'") from error

    async def picture(self, identity: str, name: str, side: str) -> bytes:
        """An input as the model sees it, PNG; `NotFound`."""
        one = await self.get(identity)
        _require_side(one, side)
        for written in (side, "a", "b"):
            with contextlib.suppress(NotFound):
                return await self._shelf.read(identity, _picture(written, name))
        raise NotFound(f"input '{name[:100]}' of run '{identity}' is not a picture")

    async def drawing(self, identity: str, name: str, side: str) -> bytes:
        """An output as a picture, PNG; `NotFound`."""
        _require_side(await self.get(identity), side)
        try:
            return await self._shelf.read(identity, _picture(f"out-{side}", name))
        except NotFound as error:
            what = f"output '{name[:100]}' of run '{identity}' is not a picture"
            raise NotFound(what) from error

    async def given(self, identity: str) -> tuple[bytes, str] | None:
        """What people gave and how they call it; None where that was not one thing."""
        await self.get(identity)
        with contextlib.suppress(NotFound):
            data = await self._shelf.read(identity, _GIVEN)
            return data, str(json.loads(await self._shelf.read(identity, _ABOUT))["name"])
        return None


def _require_side(one: Try, side: str) -> bool:
    """Whether this side, which the try must have, has failed."""
    found = next((each for each in one.sides if each.side == side), None)
    if found is None:
        raise NotFound(f"run '{one.id}' has no side '{side[:10]}'")
    return found.error is not None


def _picture(side: str, name: str) -> str:
    return (
        f"picture-{side}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    )


def _unknown(identity: str) -> NotFound:
    return NotFound(f"there is no run '{identity[:60]}'", try_this="GET /api/tries")
