"""API keys: made, listed and revoked. A key's secret is in the answer that makes it, and nowhere.

What is stored is the id, the digest of the secret, and what the key is for. A revoked key stays in
the store, marked so.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from serve.control.decisions import KEY, Decisions, key_of
from serve.control.models import By, Written
from serve.control.storage.store import Store, StoreEdit, etag
from serve.core.access import ApiKey, Role
from serve.core.errors import Invalid, UnknownKey

_PATTERN = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,255}")


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """One key as people may see it. `state` is active, expired or revoked; times are epoch."""

    id: str
    role: Role
    models: tuple[str, ...]
    state: str
    created: float
    expires: float | None
    author: str
    note: str


class Made(NamedTuple):
    """A key that was made. `words` is what its owner has to show; nobody can ask for it again."""

    key: ApiKey
    words: str
    written: Written


class KeyCommands:
    """The commands and questions about keys. `publish` gives the generation in which they hold."""

    def __init__(
        self,
        store: Store,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
        publish: Callable[[], Awaitable[int]],
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._decisions = decisions
        self._reload = reload
        self._publish = publish
        self._wall = wall  # seconds since the epoch

    def __repr__(self) -> str:
        return f"<KeyCommands {len(self.all())}>"

    def all(self) -> tuple[KeyStatus, ...]:
        """Every key that ever was, the oldest first."""
        entries = self._decisions().entries.items()
        found = [self._status(name, entry.body) for (kind, name), entry in entries if kind == KEY]
        return tuple(sorted(found, key=lambda status: (status.created, status.id)))

    async def create(
        self, role: Role, models: Sequence[str], expires: float | None, note: str, by: By
    ) -> Made:
        """Make a key. `expires` is seconds of the epoch; `Invalid` when it could open nothing."""
        for pattern in models:
            if not _PATTERN.fullmatch(pattern):
                raise Invalid(
                    f"'{pattern}' is not a valid pattern for model names",
                    why="a pattern has letters, digits, '.', '_', '-' and the wildcards * ? [ ] !",
                )
        if role is Role.ADMIN and tuple(models) != ("*",):
            raise Invalid(
                "an admin key cannot be limited to some models",
                why="an admin can create keys for all models",
                try_this="use the role 'predictor'",
            )
        now = self._wall()
        if expires is not None and expires <= now:
            raise Invalid("the key's expiry time is in the past")
        key, words = ApiKey.create(role, tuple(models), expires)
        body = {
            "digest": key.digest,
            "role": key.role.value,
            "models": list(key.models),
            "expires": key.expires,
            "created": now,
            "author": by.author,
            "note": note,
        }
        return Made(key, words, await self._write(key.id, body, by))

    async def revoke(self, identity: str, by: By) -> Written:
        """Let the key open nothing any more; again is no mistake. `UnknownKey` for no key."""
        entry = self._decisions().entry(KEY, identity)
        if entry.body is None:
            raise UnknownKey(identity)
        if entry.body.get("revoked"):
            return Written(await self._publish(), entry.etag)
        return await self._write(identity, entry.body | {"revoked": True}, by)

    async def _write(self, identity: str, body: dict[str, Any], by: By) -> Written:
        change = StoreEdit(KEY, identity, body, by.author, by.reason, by.if_match)
        revision = await self._store.apply(change)
        await self._reload()
        return Written(await self._publish(), etag(revision))

    def _status(self, identity: str, body: dict[str, Any]) -> KeyStatus:
        key = key_of(identity, body)
        state = "active"
        if body.get("revoked"):
            state = "revoked"
        elif key.expires is not None and key.expires <= self._wall():
            state = "expired"
        return KeyStatus(
            id=key.id,
            role=key.role,
            models=key.models,
            state=state,
            created=float(body["created"]),
            expires=key.expires,
            author=str(body["author"]),
            note=str(body["note"]),
        )
