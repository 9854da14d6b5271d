"""`servegate sync`: the agent beside a Triton, which keeps its folder as the control plane says.

Two things go on at the same time: waiting for the next page, and working on the present one. A new
page ends the work on the old one; what was fetched by then is kept. Without a control plane nothing
is changed: what is in the folder stays, and Triton goes on serving it.
"""

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from serve.app.ports import stop_on_signals
from serve.app.sync_cache import Cache
from serve.app.sync_line import SyncLine
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.agents import AgentReport, Page
from serve.control.deliveries.delivery import Slot
from serve.control.deliveries.folder import DeliveryPiece, RepositoryFolder, Watcher
from serve.control.deliveries.repository import OWN
from serve.control.deliveries.version_folder import BlobSource
from serve.core.errors import CannotStart, ServegateError, Unavailable
from serve.processes import hold_lock

FIRST_PAUSE, LAST_PAUSE = 0.2, 15.0  # seconds between attempts
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class Orders:
    """What an agent is started with. `storage` is empty when blobs come over the admin API."""

    url: str
    replica: str
    folder: Path
    secret: str
    cache_bytes: int
    storage: str = ""


class Agent(Watcher):
    """Follows one control plane, for one replica."""

    def __init__(
        self,
        line: SyncLine,
        folder: RepositoryFolder,
        *,
        cache: Cache | None,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line = line
        self._folder = folder
        self._cache = cache
        self._say = say
        self._clock = clock
        self._page = Page("", (), frozenset())
        self._told: tuple[str, AgentReport] | None = None  # the report that was believed last
        self._begun: dict[Slot, float] = {}
        self._why = ""  # what the control plane's silence was put down to

    def __repr__(self) -> str:
        return f"<Agent {self._line!r} page={self._page.name or 'none yet'}>"

    async def run(self) -> None:
        """Follow the control plane until cancelled."""
        working: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            while True:
                page = await self._next()
                if page is None and (not self._page.name or (working and not working.done())):
                    continue
                if working is not None:
                    working.cancel()
                    await asyncio.wait((working,))
                self._page = page or self._page
                working = tasks.create_task(self._work(self._page))

    def begins(self, piece: DeliveryPiece) -> None:
        """See `Watcher`."""
        layout = piece.manifest.layout
        size = _readable(sum(file.size for file in layout.for_triton))
        self._say(f"fetching {_named(piece.slot)}: {len(layout.for_triton)} files, {size}")
        self._begun[piece.slot] = self._clock()

    async def ended(self, slot: Slot) -> None:
        """See `Watcher`."""
        took = self._clock() - self._begun.pop(slot, self._clock())
        why = self._folder.problems.get(slot)
        self._say(
            f"cannot fetch {_named(slot)}: {why}"
            if why
            else f"fetched {_named(slot)} in {took:.1f} s"
        )
        with contextlib.suppress(ServegateError):  # the report at the end is repeated until heard
            await self._report(self._page)

    def removed(self, slot: Slot) -> None:
        """See `Watcher`."""
        self._say(f"removed {_named(slot)}")

    async def _next(self) -> Page | None:
        """The next page, or None after a while; waits out every silence."""
        for pause in _pauses():
            try:
                page = await self._line.wanted(self._page.name)
            except ServegateError as error:
                if self._why != error.what:
                    self._say(f"{error}; the folder stays as it is")
                self._why = error.what
                await asyncio.sleep(pause)
            else:
                if self._why:
                    self._say("the control plane responds again")
                self._why = ""
                return page
        raise AssertionError("pauses never end")

    async def _work(self, page: Page) -> None:
        """Make the folder as the page says, however often it takes; then report."""
        wanted = {f.sha256 for piece in page.pieces for f in piece.manifest.layout.for_triton}
        for pause in _pauses():
            try:
                await self._folder.bring(page.pieces, page.keep, self)
                if self._cache is not None:
                    await asyncio.to_thread(self._cache.trim, wanted)
                await self._report(page)
            except Unavailable:
                pass
            except OSError as error:
                self._say(f"cannot update the folder: {error}")
            else:
                if not self._folder.problems:
                    return
            await asyncio.sleep(pause)

    async def _report(self, page: Page) -> None:
        report = AgentReport(self._folder.slots, self._folder.problems)
        if self._told != (page.name, report) and await self._line.delivered(page.name, report):
            self._told = (page.name, report)


async def run_sync(
    orders: Orders, *, say: Callable[[str], None], trust: Callable[[], ssl.SSLContext]
) -> None:
    """Run an agent until SIGINT or SIGTERM; `CannotStart` while another one has the folder."""
    stop = stop_on_signals()
    keeping = asyncio.create_task(keep(orders, say=say, trust=trust))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((keeping, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (keeping, stopping):
        task.cancel()
    await asyncio.wait((keeping, stopping))
    if not keeping.cancelled():
        keeping.result()


async def keep(
    orders: Orders, *, say: Callable[[str], None], trust: Callable[[], ssl.SSLContext]
) -> None:
    """Be the one agent of this folder until cancelled."""
    line = SyncLine(orders.url, replica=orders.replica, secret=orders.secret, trust=trust)
    with _only_agent(orders.folder):
        async with line:
            source, cache = _source(orders, line)
            agent = Agent(line, RepositoryFolder(source, orders.folder), cache=cache, say=say)
            say(f"syncing {orders.folder} for replica {orders.replica} with {orders.url}")
            await agent.run()


def _source(orders: Orders, line: SyncLine) -> tuple[BlobSource, Cache | None]:
    """Where blobs come from. A storage that is a folder needs no cache: its blobs are linked."""
    storage = ArtifactStorage.of(orders.storage) if orders.storage else None
    if storage is not None and storage.local_path("0" * 64) is not None:
        return storage, None
    cache = Cache(orders.folder / OWN / "cache", storage or line, most=orders.cache_bytes)
    return cache, cache


@contextlib.contextmanager
def _only_agent(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(folder / OWN / "lock"))
        except CannotStart as error:
            raise CannotStart(
                f"another agent already uses the folder {folder}",
                why=error.why,
                try_this="pass --folder with another folder, or stop that process",
            ) from error
        yield


def _pauses() -> Iterator[float]:
    """Ever longer, and never quite the same: many agents lose one control plane at one time."""
    pause = FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, LAST_PAUSE)


def _named(slot: Slot) -> str:
    return f"{slot[0]} version {slot[1]}"


def _readable(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
