"""Version records in the store: read as values, and changed only from the state that was seen.

Two writers may meet at one record: the pipeline that publishes it, and people who set its tags. So
a change is a function of the record. Where somebody else was faster it is applied to what they
wrote, unless the version is in another state by then: its writer then has nothing to add.
"""

import asyncio
from collections.abc import Awaitable, Callable

from serve.control.decisions import Decisions
from serve.control.models import By
from serve.control.storage.store import Store, StoreEdit, etag
from serve.control.versions import VERSION, PublishedVersion
from serve.core.errors import Conflict, PreconditionFailed, UnknownModel, UnknownVersion
from serve.core.versions import VersionState

SERVEGATE = "servegate"  # the author of what nobody asked for in person
IN_PROGRESS = frozenset({VersionState.UPLOADED, VersionState.CHECKED})
LIVING = IN_PROGRESS | {VersionState.PUBLISHED, VersionState.RETIRED}
_NEVER_SET = etag(0)
_ATTEMPTS = 10  # each lost one means that somebody else's write went through
_LONGEST = 1000  # characters of a revision's reason


class Records:
    """All version records. `publish` makes a change known to the data plane, as for `Keys`.

    Who holds `collecting` may take files away that no record needs; who moves the files of an
    upload into a manifest holds it, too, so that the one never sees the other half done.
    """

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
        self.collecting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Records {len(self.all())}>"

    @property
    def decisions(self) -> Decisions:
        """What is set at this moment."""
        return self._decisions()

    @property
    def now(self) -> float:
        """Seconds of the epoch."""
        return self._wall()

    def all(self) -> tuple[PublishedVersion, ...]:
        """Every version that ever had a number, by model and number."""
        models = self._decisions().versions.values()
        return tuple(version for versions in models for version in versions.values())

    def of(self, model: str) -> tuple[PublishedVersion, ...]:
        """The versions of one model, ascending; none for a model that was never pushed."""
        return tuple(self._decisions().versions.get(model, {}).values())

    def find(self, model: str, number: int) -> PublishedVersion | None:
        """One version, if it ever was."""
        return self._decisions().versions.get(model, {}).get(number)

    def get(self, model: str, number: int) -> PublishedVersion:
        """One version; `UnknownModel` or `UnknownVersion` when it never was."""
        version = self.find(model, number)
        if version is None:
            raise UnknownVersion(model, str(number)) if self.of(model) else UnknownModel(model)
        return version

    async def refresh(self) -> None:
        """Read again what is stored."""
        await self._reload()

    async def create(self, version: PublishedVersion, by: By) -> PublishedVersion:
        """A new record; `PreconditionFailed` when its number is taken."""
        return await self._write(version, by, _NEVER_SET)

    async def change(
        self,
        version: PublishedVersion,
        edit: Callable[[PublishedVersion], PublishedVersion],
        by: By,
    ) -> PublishedVersion | None:
        """Write what `edit` makes of the present record; None when its state is another by now.

        With `by.if_match` it must be the very record that was read, else `PreconditionFailed`.
        """
        for _ in range(_ATTEMPTS):
            present = self.find(version.model, version.number)
            if present is None or present.state is not version.state:
                return None
            edited = edit(present)
            if edited == present and not by.if_match:
                return present
            try:
                return await self._write(edited, by, by.if_match or present.etag)
            except PreconditionFailed:
                if by.if_match:
                    raise
                await self._reload()
        raise Conflict(
            f"other requests keep changing version {version.number} of model '{version.model}'",
            try_this="repeat the request",
        )

    async def set(self, kind: str, key: str, body: object, by: By) -> None:
        """Write something else; `PreconditionFailed` unless nobody has ever set it."""
        await self._apply(StoreEdit(kind, key, body, by.author, by.reason[:_LONGEST], _NEVER_SET))

    async def _write(self, version: PublishedVersion, by: By, if_match: str) -> PublishedVersion:
        reason = by.reason[:_LONGEST]
        change = StoreEdit(VERSION, version.key, version.to_body(), by.author, reason, if_match)
        await self._apply(change)
        return self.get(version.model, version.number)

    async def _apply(self, change: StoreEdit) -> None:
        await self._store.apply(change)
        await self._reload()
        await self._publish()
