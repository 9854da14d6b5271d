"""Pending labels and routes: set as soon as the version that they wait for is ready.

A push may say how a version is to be called, or that all calls go to it. Both wait in the version's
record until enough replicas hold it, over restarts; what cannot be set goes on waiting, and the
record's reason says why.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from serve.control.models import By
from serve.control.publication.records import Records
from serve.control.versions import PublishedVersion
from serve.core.errors import ServegateError
from serve.core.routes import Split
from serve.processes.failpoints import reach

_log = logging.getLogger("servegate.pending")
TICK = 0.25  # seconds between two looks at what is ready

SetLabel = Callable[[str, str, int, By], Awaitable[object]]
SetRoute = Callable[[str, Split, By], Awaitable[object]]


class Pending:
    """Watches versions that something waits for. The setters are those of `Models`."""

    def __init__(
        self,
        records: Records,
        *,
        ready_enough: Callable[[str, int], bool],
        set_label: SetLabel,
        set_route: SetRoute,
    ) -> None:
        self._records = records
        self._ready_enough = ready_enough
        self._set_label = set_label
        self._set_route = set_route

    def __repr__(self) -> str:
        return f"<Pending {len(self._waiting())}>"

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.round()
            await asyncio.sleep(TICK)

    async def round(self) -> None:
        """Set what is due now."""
        for version in self._waiting():
            if self._ready_enough(version.model, version.number):
                reach("label.due")
                try:
                    await self._settle(version)
                except ServegateError as error:  # the store does not answer, or is too busy
                    _log.warning(
                        "cannot set the pending labels or route of %s: %s", version.key, error
                    )

    def _waiting(self) -> list[PublishedVersion]:
        found = [one for one in self._records.all() if one.is_published]
        return [version for version in found if version.labels or version.live]

    async def _settle(self, version: PublishedVersion) -> None:
        """Set each of them that can be set, and write down what is left."""
        by = By(version.provenance.author, f"requested by the push of version {version.number}")
        problems: list[str] = []
        labels = [
            label
            for label in version.labels
            if await _succeeds(self._set_label(version.model, label, version.number, by), problems)
        ]
        live = version.live and await _succeeds(
            self._set_route(version.model, Split.of({version.number: 100}), by), problems
        )
        told = " and ".join(
            [*(f"label '{label}' is set" for label in labels), *["all traffic goes to it"] * live]
        )
        await self._records.change(
            version,
            lambda present: replace(
                present,
                labels=tuple(label for label in present.labels if label not in labels),
                live=present.live and not live,
                reason="; ".join(problems),
            ),
            By(by.author, told or "; ".join(problems)),
        )


async def _succeeds(work: Awaitable[object], problems: list[str]) -> bool:
    """Whether it does; if not, why is noted."""
    try:
        await work
    except ServegateError as error:
        problems.append(str(error))
        return False
    return True
