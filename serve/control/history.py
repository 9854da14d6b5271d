"""History: every change in order, what two revisions differ in, and the way back to one of them.

A rollback is a change like any other. It is asked of the same commands (`restoring.py`), so it
passes the same checks: a version that is not ready now gets no calls because it once did.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve.control.decisions import KEY
from serve.control.models import By, Written
from serve.control.storing.store import Store
from serve.control.versions import VERSION
from serve.core.errors import Invalid, UnknownRevision

_HIGHEST = 2**63 - 1  # what the databases can hold
_SECRETS = {KEY: ("digest",)}  # fields that no answer shows
_WHY_NOT = {
    KEY: "a key that was revoked must stay so; make a new one with servegate key create",
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
class Difference:
    """One field of a body, with a dot for each level; None where there is no such field."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """A line for people: `split.2: 10 → 40`."""
        return f"{self.field or 'value'}: {_shown(self.old)} → {_shown(self.new)}"


class History:
    """The questions about what was changed, and the command that goes back.

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

    async def diff(self, number: int, other: int | None = None) -> tuple[Difference, ...]:
        """What a revision changed; or what is new in `other`, both being of one thing."""
        one = await self.get(number)
        if other is None:
            return differences(one.before, one.after)
        two = await self.get(other)
        if (one.kind, one.key) != (two.kind, two.key):
            raise Invalid(
                "these revisions cannot be compared",
                why=f"{number} changed {one.thing}, {other} changed {two.thing}",
            )
        return differences(one.after, two.after)

    async def rollback(self, number: int, by: By) -> Written:
        """Give the thing the body that it had right after a revision, as a change of today."""
        revision = await self.get(number)
        restore = self._restores.get(revision.kind)
        if restore is None:
            raise Invalid(
                f"revision {number} cannot be rolled back to: it changed {revision.thing}",
                why=_WHY_NOT.get(revision.kind, f"only {', '.join(self._restores)} can go back"),
            )
        reason = f"rollback to revision {number}" + (f": {by.reason}" if by.reason else "")
        return await restore(revision.key, revision.after, By(by.author, reason, by.if_match))


def differences(old: Any, new: Any) -> tuple[Difference, ...]:
    """The fields in which two JSON values differ, in their order; null and empty are as missing."""
    before, after = dict(_fields("", old)), dict(_fields("", new))
    return tuple(
        Difference(name, before.get(name), after.get(name))
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
