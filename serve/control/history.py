"""History: every change in order, what two revisions differ in, and the two ways back.

| command     | what the thing has then                                                  |
|-------------|--------------------------------------------------------------------------|
| `restore N` | its body as it was right after revision N                                |
| `undo N`    | its present body, with each field that N changed as it was before N;     |
|             | refused when a later revision changed one of these fields again          |

Both are changes like any other. They use the same commands (`restoration.py`), so they pass the
same checks: a version that is not ready now gets no calls because it once did.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve.control.decisions import KEY
from serve.control.models import By, Written
from serve.control.storage.store import Store, etag
from serve.control.versions import VERSION
from serve.core.errors import Invalid, LaterChanges, UnknownRevision

_MOST_LATER = 1000  # changes of one thing since a revision that is to be undone
_HIGHEST = 2**63 - 1  # what the databases can hold
_SECRETS = {KEY: ("digest",)}  # fields that no answer shows
_WHY_NOT = {
    KEY: "a revoked key stays revoked; create a new one with servegate key create",
    VERSION: "a version never changes; route calls to an earlier one instead",
}
Restore = Callable[[str, Any, By], Awaitable[Written]]  # key, body or None, by


@dataclass(frozen=True, slots=True)
class Revision:
    """One change: `before` and `after` are JSON values, None where there was nothing."""

    number: int
    at: float  # seconds of the epoch
    author: str
    reason: str
    kind: str
    key: str
    before: Any
    after: Any

    @property
    def thing(self) -> str:
        """What it changed: `route digits`."""
        return f"{self.kind} {self.key}".rstrip()


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field of a body, with a dot for each level; None where there is no such field."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """A line for people: `split.2: 10 → 40`."""
        return f"{self.field or 'value'}: {_shown(self.old)} → {_shown(self.new)}"


@dataclass(frozen=True, slots=True)
class WayBack:
    """A way back that was not taken yet: the body that the thing would have, in place of another.

    `etag` is that of the present body; `reason` is written with the change.
    """

    revision: Revision
    present: Any
    body: Any
    etag: str
    reason: str

    @property
    def changes(self) -> tuple[FieldDifference, ...]:
        """What would change; nothing where the thing has this body already."""
        return differences(self.present, self.body)


class History:
    """The questions about what was changed, and the commands that go back.

    `restores` has a command for every kind of thing that can go back; see `restores_of`.
    """

    def __init__(self, store: Store, restores: Mapping[str, Restore]) -> None:
        self._store = store
        self._restores = restores

    def __repr__(self) -> str:
        return f"<History of {self._store!r}>"

    async def all(
        self, *, kind: str = "", key: str = "", before: int = 0, limit: int = 100
    ) -> tuple[Revision, ...]:
        """The newest first, of all things or of some; `before` goes on from an earlier answer."""
        before = min(before, _HIGHEST)
        rows = await self._store.history(kind=kind, key=key, before=before, limit=limit)
        return tuple(_revision(row) for row in rows)

    async def get(self, number: int) -> Revision:
        """One revision; `UnknownRevision` when there is none."""
        row = await self._store.revision(number) if 0 < number <= _HIGHEST else None
        if row is None:
            raise UnknownRevision(number)
        return _revision(row)

    async def diff(self, number: int, other: int | None = None) -> tuple[FieldDifference, ...]:
        """What a revision changed; or what is new in `other`, both being of one thing."""
        one = await self.get(number)
        if other is None:
            return differences(one.before, one.after)
        two = await self.get(other)
        if (one.kind, one.key) != (two.kind, two.key):
            raise Invalid(
                "these revisions cannot be compared",
                why=f"revision {number} changed {one.thing}, revision {other} changed {two.thing}",
            )
        return differences(one.after, two.after)

    async def restoring(self, number: int) -> WayBack:
        """The way back to the body that the thing had right after a revision."""
        revision = await self._restorable(number)
        newest = (await self._later(revision) or [revision])[0]
        return _way(revision, newest, revision.after, f"restored revision {number}")

    async def undoing(self, number: int) -> WayBack:
        """The way back from one change; `LaterChanges` where others were built on it."""
        revision = await self._restorable(number)
        later = await self._later(revision)
        fields = _changed(revision)
        if len(later) == _MOST_LATER or any(fields & _changed(one) for one in later):
            raise await self._not_alone(revision, [one for one in later if fields & _changed(one)])
        newest = later[0] if later else revision
        body = _without(newest.after, revision, fields) if later else revision.before
        return _way(revision, newest, body, f"undid revision {number}")

    async def restore(self, number: int, by: By) -> Written | None:
        """Give the thing the body that it had right after a revision; None where it has that."""
        return await self.take(await self.restoring(number), by)

    async def undo(self, number: int, by: By) -> Written | None:
        """Take one change back; None where it changed nothing."""
        return await self.take(await self.undoing(number), by)

    async def take(self, way: WayBack, by: By) -> Written | None:
        """Go this way, as a change of today; None where nothing changes."""
        if not way.changes:
            return None
        reason = way.reason + (f": {by.reason}" if by.reason else "")
        restore = self._restores[way.revision.kind]
        who = By(by.author, reason, by.if_match or way.etag)
        return await restore(way.revision.key, way.body, who)

    async def _restorable(self, number: int) -> Revision:
        revision = await self.get(number)
        if revision.kind not in self._restores:
            raise Invalid(
                f"revision {number} changed {revision.thing}, which cannot be undone or restored",
                why=_WHY_NOT.get(revision.kind, f"only {', '.join(self._restores)} can be"),
            )
        return revision

    async def _later(self, revision: Revision) -> list[Revision]:
        """The changes of the same thing since a revision, the newest first."""
        found = await self.all(kind=revision.kind, key=revision.key, limit=_MOST_LATER)
        return [one for one in found if one.number > revision.number]

    async def _not_alone(self, revision: Revision, later: list[Revision]) -> LaterChanges:
        former = await self.all(
            kind=revision.kind, key=revision.key, before=revision.number, limit=1
        )
        return LaterChanges(
            revision.number,
            revision.thing,
            [
                f"revision {one.number} by {one.author}: "
                + "; ".join(str(each) for each in differences(one.before, one.after))
                for one in later
            ],
            [one.number for one in later],
            former[0].number if former else None,
        )


def _way(revision: Revision, newest: Revision, body: Any, reason: str) -> WayBack:
    tag = etag(newest.number if newest.after is not None else 0)
    return WayBack(revision, newest.after, body, tag, reason)


def _changed(revision: Revision) -> frozenset[str]:
    """The fields that a revision changed. Each is one decision, a whole split for example."""
    before, after = _object(revision.before), _object(revision.after)
    return frozenset(
        name for name in {**before, **after} if differences(before.get(name), after.get(name))
    )


def _without(present: Any, revision: Revision, fields: frozenset[str]) -> Any:
    """The present body with these fields as they were before the revision."""
    before = _object(revision.before)
    kept = {name: part for name, part in _object(present).items() if name not in fields}
    body = kept | {name: before[name] for name in fields if name in before}
    return body or (None if revision.before is None else body)


def _object(body: Any) -> Mapping[str, Any]:
    return body if isinstance(body, dict) else {}


def differences(old: Any, new: Any) -> tuple[FieldDifference, ...]:
    """The fields in which two JSON values differ, in their order; null and empty are as missing."""
    before, after = dict(_fields("", old)), dict(_fields("", new))
    return tuple(
        FieldDifference(name, before.get(name), after.get(name))
        for name in sorted({**before, **after}, key=_natural)
        if before.get(name) != after.get(name)
    )


def _fields(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a value that are there at all."""
    parts = _parts(value)
    for name, part in parts:
        yield from _fields(f"{path}.{name}" if path else str(name), part)
    if not parts and value not in (None, {}, []):
        yield path, value


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """What a value is made of; a list of plain values is one leaf."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        return list(enumerate(value))
    return []


def _natural(name: str) -> list[tuple[int, str]]:
    """Version 10 after version 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


def _shown(value: Any) -> str:
    return "(nothing)" if value is None else json.dumps(value, ensure_ascii=False)


def _revision(row: Mapping[str, Any]) -> Revision:
    before, after = (_without_secrets(row["kind"], row[name]) for name in ("before", "after"))
    return Revision(
        row["id"], row["at"], row["author"], row["reason"], row["kind"], row["key"], before, after
    )


def _without_secrets(kind: str, text: str | None) -> Any:
    value = None if text is None else json.loads(text)
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if name not in _SECRETS.get(kind, ())}
    return value
