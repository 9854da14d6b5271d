"""Delivery by agents: beside each Triton a `servegate sync` fetches what is wanted and reports.

    control                                agent of replica gpu-1
      │  ◀── GET /internal/wanted?replica=gpu-1&have=PAGE ──  │   waits while PAGE is the latest
      │  ── page: pieces, keep ──────────────────────────▶    │   fetches, removes the rest
      │  ◀── POST /internal/delivered {page, slots, …} ─────  │

A page's name begins with a word that each control plane draws at its start, so an agent gets a page
after every restart of either side, and reports anew. Only a report on the latest page is believed:
an agent that has not seen it yet may be removing what it wants again. Before the first `deliver`
there is no page: an agent that got an empty one would remove everything it has.
"""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from serve.control.deliveries.delivery import Slot
from serve.control.deliveries.folder import DeliveryPiece, DeliveryReader, Manifests, place
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid
from serve.core.versions import VersionFile


@dataclass(frozen=True, slots=True)
class Page:
    """What every agent has to have (`pieces`), and what it must not remove (`keep`)."""

    name: str
    pieces: tuple[DeliveryPiece, ...]
    keep: frozenset[Slot]

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        pieces = [piece.to_json() for piece in self.pieces]
        return {"name": self.name, "pieces": pieces, "keep": sorted(self.keep)}

    @classmethod
    def from_json(cls, data: Any) -> "Page":
        """Read what `to_json` gave; `Invalid` when it does not hold together."""
        try:
            keep = frozenset((str(name), int(number)) for name, number in data["keep"])
            return cls(
                str(data["name"]),
                tuple(DeliveryPiece.from_json(one) for one in data["pieces"]),
                keep,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid("the list of wanted versions is malformed", why=repr(error)) from error


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent has: versions that are whole on its disk, and why others are not."""

    slots: frozenset[Slot]
    problems: Mapping[Slot, str]


SILENT = 5.0  # seconds without a question after which an agent is taken to be gone


@dataclass(slots=True)
class AgentContact:
    """When an agent was last there (monotonic seconds), and how many of its polls wait now."""

    at: float
    polls: int = 0


class AgentDelivery:
    """What the agents are asked for, and what they have said. What they have stays on their disks,
    so a report holds until the next one."""

    def __init__(self, storage: Manifests, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._reading = DeliveryReader(storage)
        self._clock = clock
        self._heard: dict[str, AgentContact] = {}
        self._mine = secrets.token_hex(4)
        self._said, self._pages = "", 0
        self._page: Page | None = None
        self._changed = asyncio.Condition()
        self._reports: dict[str, AgentReport] = {}
        self._unread: Mapping[Slot, str] = {}
        self._closed = False

    def __repr__(self) -> str:
        page = self._page.name if self._page else "none yet"
        return f"<AgentDelivery page={page} agents={sorted(self._reports)}>"

    async def deliver(self, wanted: Collection[PublishedVersion], held: Collection[Slot]) -> None:
        """Tell the agents; does not wait for them. See `Delivery`."""
        pieces, self._unread = await self._reading.pieces(wanted)
        keep = frozenset({*held, *(place(version) for version in wanted)})
        what = [(*piece.slot, piece.manifest.content, piece.config) for piece in pieces]
        said = json.dumps([sorted(what), sorted(keep)])
        if said == self._said:
            return
        # A page that says what an earlier one said has another name all the same: an agent that
        # was slow would otherwise take what it reported then for what it has now.
        self._said, self._pages = said, self._pages + 1
        self._page = Page(f"{self._mine}-{self._pages}", pieces, keep)
        self._reports = {
            replica: AgentReport(report.slots & keep, report.problems)
            for replica, report in self._reports.items()
        }
        async with self._changed:
            self._changed.notify_all()

    def has(self, replica: str, version: PublishedVersion) -> bool:
        """See `Delivery`."""
        report = self._reports.get(replica)
        return report is not None and place(version) in report.slots

    def problem(self, replica: str, version: PublishedVersion) -> str:
        """See `Delivery`."""
        slot, report = place(version), self._reports.get(replica)
        if slot in self._unread:
            return self._unread[slot]
        if report is None:
            return f"'servegate sync' has not reported for replica {replica} yet"
        why = report.problems.get(slot, "")
        if why or slot in report.slots:
            return why
        heard = self._heard.get(replica)
        if heard is None or heard.polls or self._clock() - heard.at < SILENT:
            return ""
        silence = self._clock() - heard.at
        return f"'servegate sync' has not polled for replica {replica} for {silence:.0f} s"

    async def poll(self, have: str, within: float, *, replica: str = "") -> Page | None:
        """The page, as soon as it is another than `have`; None when the time is up.

        While its agent polls, a replica can expect what it lacks.
        """
        with self._listening(replica):
            return await self._next(have, within)

    @contextlib.contextmanager
    def _listening(self, replica: str) -> Iterator[None]:
        heard = self._heard.setdefault(replica, AgentContact(self._clock()))
        heard.polls += 1
        try:
            yield
        finally:
            heard.polls -= 1
            heard.at = self._clock()

    async def _next(self, have: str, within: float) -> Page | None:
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._changed.wait_for(
                        lambda: self._closed or (self._page and self._page.name != have)
                    )
            page = self._page
        return page if page is not None and page.name != have else None

    async def close(self) -> None:
        """Send every waiting agent home: this control plane is about to end."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    def delivered(
        self, replica: str, page: str, slots: Iterable[Slot], problems: Mapping[Slot, str]
    ) -> bool:
        """An agent reports what it has; whether that is believed."""
        if self._page is None or page != self._page.name:
            return False
        self._reports[replica] = AgentReport(frozenset(slots), MappingProxyType(dict(problems)))
        return True

    def wanted_blob(self, sha256: str) -> VersionFile | None:
        """The file with this digest, if an agent may need it."""
        pieces = self._page.pieces if self._page else ()
        files = (file for piece in pieces for file in piece.manifest.layout.for_triton)
        return next((file for file in files if file.sha256 == sha256), None)
