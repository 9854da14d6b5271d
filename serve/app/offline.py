"""Keys while no control plane runs: made, listed and revoked in the store of the state folder.

So a gateway that must not listen without keys can be given its first one. The answers are those of
the admin API; the change holds from the next start.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from serve.admin.api import schemas
from serve.app.paths import LOCK_FILE, store_place
from serve.control.decisions import Decisions
from serve.control.keys import KeyCommands
from serve.control.models import By
from serve.control.storage.store import Store
from serve.core.access import Role
from serve.processes import hold_lock
from serve.settings import Settings

T = TypeVar("T")


class KeysAtRest:
    """The keys of a state folder whose gateway stands still; see `keys_at_rest`."""

    def __init__(self, store: Store, by: By) -> None:
        self._store = store
        self._by = by
        self._decisions = Decisions()
        self._keys = KeyCommands(
            store,
            decisions=lambda: self._decisions,
            reload=self._reload,
            publish=_nowhere,
            wall=time.time,
        )

    def __repr__(self) -> str:
        return f"<KeysAtRest in {self._store!r}>"

    def all(self) -> list[dict[str, Any]]:
        """As `GET /api/keys` answers."""
        asyncio.run(self._reload())
        views = (schemas.KeyView(**schemas.key(status)) for status in self._keys.all())
        return [view.model_dump(mode="json") for view in views]

    def create(
        self, role: Role, models: list[str], expires_in: float | None, note: str
    ) -> dict[str, Any]:
        """As `POST /api/keys` answers."""
        expires = None if expires_in is None else time.time() + expires_in
        made = self._run(lambda: self._keys.create(role, models, expires, note, self._by))
        return {"id": made.key.id, "key": made.words, **_LATER}

    def revoke(self, identity: str) -> dict[str, Any]:
        """As `DELETE /api/keys/{id}` answers."""
        self._run(lambda: self._keys.revoke(identity, self._by))
        return dict(_LATER)

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def read_first() -> T:
            await self._reload()
            return await work()

        return asyncio.run(read_first())

    async def _reload(self) -> None:
        self._decisions = Decisions(await self._store.read())


_LATER = {"generation": 0, "in_force": False}


@contextlib.contextmanager
def keys_at_rest(settings: Settings, author: str, reason: str) -> Iterator[KeysAtRest]:
    """The keys, while the state folder is ours alone; `CannotStart` while a gateway runs on it.

    Whoever leads on a PostgreSQL store hears of every change, so nobody has to be kept out there.
    """
    place = store_place(settings)
    lock = hold_lock(settings.state_path / LOCK_FILE)
    with lock if isinstance(place, Path) else contextlib.nullcontext():
        store = Store(place, clock=time.time)
        try:
            store.migrate()
            yield KeysAtRest(store, By(author, reason))
        finally:
            store.close()


async def _nowhere() -> int:
    """Nobody is there to publish to."""
    return 0
