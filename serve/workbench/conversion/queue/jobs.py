"""All jobs: their records in the store, what they tell while they run, and their papers.

Papers are one blob with the events and the report of a job that has ended. They are in the storage
because the store reads all its bodies after each change, and a report is long.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.models import By
from serve.control.publication.records import SERVEGATE
from serve.control.storage.store import Store, StoreEdit, etag
from serve.control.stored_conversions import CONVERSION
from serve.core.errors import NotFound, PreconditionFailed, UnknownConversion
from serve.workbench.conversion.queue.job import Job, JobState, jobs_in
from serve.workbench.conversion.queue.progress import STATE, ConversionProgress, Event, since

KEPT = 100  # jobs that have ended; older ones are forgotten
Page = Mapping[str, Any]
_NEVER_SET = etag(0)
_LARGEST = 64 << 20  # bytes of papers
_LONGEST = 1000  # characters of a revision's reason


class Jobs:
    """The jobs of one gateway. `wall` is seconds of the epoch.

    Who holds `collecting` keeps garbage collection from taking papers that no record names yet.
    """

    def __init__(
        self,
        store: Store,
        storage: ArtifactStorage,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
        wall: Callable[[], float],
        collecting: asyncio.Lock,
    ) -> None:
        self._store = store
        self._storage = storage
        self._decisions = decisions
        self._reload = reload
        self._wall = wall
        self._collecting = collecting
        self._moving = asyncio.Lock()
        self._told: dict[str, ConversionProgress] = {}  # of those that have not ended

    def __repr__(self) -> str:
        return f"<Jobs {len(self.all())}>"

    def all(self) -> tuple[Job, ...]:
        """Every job that is remembered, in the order in which they were asked for."""
        return jobs_in(self._decisions())

    def in_state(self, *states: JobState) -> tuple[Job, ...]:
        """Those in one of these states, in the same order."""
        return tuple(job for job in self.all() if job.state in states)

    def find(self, identity: str) -> Job | None:
        """One job, if it is remembered."""
        return next((job for job in self.all() if job.id == identity), None)

    def get(self, identity: str) -> Job:
        """One job; `UnknownConversion`."""
        job = self.find(identity)
        if job is None:
            raise UnknownConversion(identity)
        return job

    # --- changes -------------------------------------------------------------------------------

    async def create(self, job: Job, by: By) -> Job:
        """A new record, queued now."""
        now = self._wall()
        made = replace(job, created=now).moved(JobState.QUEUED, now)
        await self._write(made, by, _NEVER_SET)
        self.progress(job.id).tell(_state_event(made))
        return self.get(job.id)

    async def move(self, job: Job, state: JobState, by: By, **changes: Any) -> Job | None:
        """The job in another state, or changed in its own; None when somebody has moved it."""
        async with self._moving:
            try:
                moved = await self._move(job, state, by, changes)
            except PreconditionFailed:  # it was written without our knowing, by us or others
                await self._reload()
                moved = await self._move(job, state, by, changes)
        if moved is not None and not moved.has_ended:
            self.progress(job.id).tell(_state_event(moved))
        return moved

    async def report_on(self, job: Job, state: JobState, by: By, report: Page) -> Job | None:
        """As `move`, with a report."""
        async with self._collecting:
            papers = await self._file((), report)
            return await self.move(job, state, by, papers=papers, has_report=True)

    async def end(
        self,
        job: Job,
        state: JobState,
        by: By,
        *,
        fault: Mapping[str, str] | None = None,
        report: Page | None = None,
    ) -> Job | None:
        """The job in a last state, with its papers; None when somebody has moved it.

        Without a report, the one in the papers that it has already stays.
        """
        last = _state_event(replace(job, state=state, fault=fault or {}))
        events = self.progress(job.id).copy()
        events.tell(last)
        if report is None:
            report = (await self._papers(job)).get("report")
        async with self._collecting:
            ended = await self.move(
                job,
                state,
                by,
                fault=MappingProxyType(dict(fault or {})),
                papers=await self._file(events.events, report),
                has_report=report is not None,
            )
        present = self.find(job.id)
        if (present is None or present.has_ended) and job.id in self._told:
            self._told.pop(job.id).tell(last)  # who waits is woken
        await self._forget_old()
        return ended

    # --- what they tell --------------------------------------------------------------------------

    def progress(self, identity: str) -> ConversionProgress:
        """What a job that has not ended tells."""
        return self._told.setdefault(identity, ConversionProgress(self._wall))

    async def events(self, identity: str, after: int = 0) -> tuple[Event, ...]:
        """What a job has told so far, above a number; `UnknownConversion`."""
        job = self.get(identity)
        if not job.has_ended:
            return self.progress(identity).since(after)
        return since((await self._papers(job)).get("events", ()), after)

    async def news(
        self, identity: str, after: int, within: float
    ) -> tuple[Job, tuple[Event, ...]] | None:
        """A job and its events above a number, once there are some or it has ended.

        None when the time (seconds) is up; `UnknownConversion`.
        """
        if not self.get(identity).has_ended:
            try:
                async with asyncio.timeout(within):
                    found = await self.progress(identity).news(after)
                return self.get(identity), found
            except TimeoutError:
                return None
        return self.get(identity), await self.events(identity, after)

    async def report(self, identity: str) -> Page:
        """The report, as `Report.to_json` gives it; `NotFound` while, or where, there is none."""
        job = self.get(identity)
        report: Page | None = (await self._papers(job)).get("report")
        if report is None:
            raise NotFound(
                f"conversion '{identity}' has no report",
                why=f"it is {job.state.value}",
            )
        return report

    # --- within ----------------------------------------------------------------------------------

    async def _move(
        self, job: Job, state: JobState, by: By, changes: Mapping[str, Any]
    ) -> Job | None:
        present = self.find(job.id)
        if present is None or present.state is not job.state:
            return None
        await self._write(present.moved(state, self._wall(), **changes), by, present.etag)
        return self.find(job.id)

    async def _write(self, job: Job, by: By, if_match: str) -> None:
        reason = by.reason[:_LONGEST]
        await self._store.apply(
            StoreEdit(CONVERSION, job.id, job.to_body(), by.author, reason, if_match)
        )
        await self._reload()

    async def _file(self, events: Sequence[Event], report: Page | None) -> str:
        """Put papers into the storage; gives their digest."""
        page = json.dumps({"events": events, "report": report}).encode()
        _, sha256 = await self._storage.add_bytes(page)
        return sha256

    async def _papers(self, job: Job) -> Page:
        """What is in the papers; nothing when somebody has taken them out of the storage."""
        if not job.papers:
            return {}
        try:
            data = await self._storage.read(job.papers, most=_LARGEST)
        except NotFound:
            return {}
        page: Page = json.loads(data)
        return page

    async def _forget_old(self) -> None:
        """Forget what has ended, but for the newest; the history keeps all of it."""
        ended = [job for job in self.all() if job.has_ended]
        for job in ended[:-KEPT]:
            why = f"only the last {KEPT} are kept"
            await self._store.apply(StoreEdit(CONVERSION, job.id, None, SERVEGATE, why))
        if len(ended) > KEPT:
            await self._reload()


def _state_event(job: Job) -> Event:
    version = {} if job.version is None else {"version": job.version}
    return {**job.fault, "type": STATE, "state": job.state.value, **version}
