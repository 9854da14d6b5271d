"""The workshop: it runs the jobs, a few at a time, driven by their records.

| the record says                   | and        | what is done                              |
|-----------------------------------|------------|-------------------------------------------|
| queued                            | a free slot| it is converted, in a task of its own     |
| running, publishing, no version   | no task    | it was interrupted: queued again, or over |
| publishing, with a version        | no task    | once the version is published, or not, so |

So whoever leads after a crash goes on from what the records say. The result of a conversion is
published like anything that is pushed: uploaded, committed, linted, tried in quarantine.

The result of a conversion: the files of a version, where they come from, and what is told.

What people read names no folder of this machine: paths are those of the upload, and the command of
a report can be typed where the source lies.

What the jobs need of a converter: the child process in production, a script in tests.
"""

import asyncio
import hashlib
import json
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.models import By
from serve.control.publication.publications import PublicationRequest, Publications
from serve.control.publication.records import IN_PROGRESS, SERVEGATE, Records
from serve.control.stored_conversions import needed_uploads
from serve.control.uploads.uploads import Uploads
from serve.control.versions import PublishedVersion
from serve.core.errors import (
    ConversionFailed,
    GateRefused,
    Invalid,
    NoSpace,
    ServegateError,
    Unavailable,
)
from serve.core.versions import CONVERSION, CONVERSION_PAGE, VersionFile, VersionState
from serve.workbench.conversion.events import OnEvent, failure_facts
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.queue.job import Job, JobState
from serve.workbench.conversion.queue.jobs import Jobs
from serve.workbench.conversion.queue.progress import ConversionProgress, plain
from serve.workbench.conversion.queue.sources import ConversionSource
from serve.workbench.conversion.report import ConversionReport
from serve.workbench.conversion.request import ConversionRequest

# --- what the jobs need of a converter ------------------------------------------------------------


class Converter(Protocol):
    """Converts one source at a time into a folder, under the limits that the operator has set."""

    async def convert(
        self, request: ConversionRequest, base: Path, work: Path, on_event: OnEvent
    ) -> ConversionReport:
        """Convert and judge; what comes of it lies in `work`. Paths are relative to `base`.

        `ConversionFailed`, or `GateRefused` with the report in `work`. Cancelled, it leaves no
        process behind.
        """

    def write(self, work: Path, report: ConversionReport, *, name: str, out: Path) -> Path:
        """Write the model folder `out/name` that can be published; gives its path."""

    def render(self, report: ConversionReport) -> str:
        """The report as a page of HTML."""


# --- the result of a conversion -------------------------------------------------------------------


_LARGEST = 16 << 20  # bytes of a report
_MOST_TOOLS, _LONGEST_TAG = 50, 200
_HINTS = {  # where the catalogue's are for who converts on their own machine
    "out_of_memory": "use a larger --conversion-memory of servegate up, or a larger machine",
    "timed_out": "use a larger --conversion-timeout of servegate up",
    "converter_missing": "pip install '.[convert]' in a checkout on the control plane's machine",
    "ambiguous_signature": "choose one with `signature` in the request",
    "numbers_differ": "use larger `tolerances` in the request if you accept larger errors",
    "metric_dropped": "use another precision, more samples, or a larger `max_drop` in the request",
    "interrupted": "run servegate convert retry ID",
}


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """A model folder that can be published: each of its files, and where that lies."""

    TAG: ClassVar[str] = "conversion"  # names the job that has made a version

    report: ConversionReport
    files: tuple[tuple[VersionFile, Path], ...]

    @classmethod
    def of(cls, report: ConversionReport, folder: Path) -> "ConversionResult":
        """Read and hash the files of a folder, which takes a while."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = tuple((_file(path, folder), path) for path in paths)
        return cls(report, files)

    def ask(self, job: Job) -> PublicationRequest:
        """What is wanted of its version, and where that comes from."""
        versions = list(self.report.versions.items())[:_MOST_TOOLS]
        kind = str(self.report.source.get("kind", "source"))
        return PublicationRequest(
            labels=job.asked.labels,
            live=job.asked.live,
            again=job.asked.again,
            source=f"{kind} {self.report.request.source}, converted by job {job.id}",
            tools=MappingProxyType({k[:_LONGEST_TAG]: v[:_LONGEST_TAG] for k, v in versions}),
            tags=MappingProxyType({self.TAG: job.id}),
        )


class Hiding:
    """Takes the path of the folder in which a job works out of texts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __repr__(self) -> str:
        return f"<Hiding {self._folder}>"

    def text(self, text: str) -> str:
        """A text in which paths begin below the folder, or below that of its source."""
        for folder in (self._folder / "given", self._folder):
            text = text.replace(f"{folder}/", "")
        return text

    def event(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """An event, or a fault, with such texts."""
        return {k: self.text(v) if isinstance(v, str) else v for k, v in facts.items()}

    def rewrite(self, entry: Path) -> None:
        """The same for the reports in a model folder."""
        for path in (entry / CONVERSION, entry / CONVERSION_PAGE):
            if path.is_file():
                path.write_text(self.text(path.read_text()))

    def report_in(self, folder: Path) -> ConversionReport | None:
        """The report in a folder, with such texts; None when there is none that can be read."""
        try:
            with (folder / CONVERSION).open("rb") as file:
                text = file.read(_LARGEST).decode()
            return ConversionReport.from_json(json.loads(self.text(text)))
        except (OSError, ValueError, RecursionError, Invalid):
            return None


def fault_of(error: Exception) -> dict[str, str]:
    """Why there is no version, with the fields of a `failed` event."""
    if isinstance(error, ConversionFailed):
        facts = failure_facts(error)
    elif isinstance(error, ServegateError):
        names = ("code", "what", "why", "try_this")
        facts = {name: getattr(error, name) for name in names}
    elif isinstance(error, OSError):
        facts = failure_facts(failed("converter_crashed", error.strerror or str(error)))
    else:
        why = "an error in Servegate; see its log"
        facts = failure_facts(failed("converter_crashed", why))
    facts["try_this"] = _HINTS.get(facts["code"], facts["try_this"])
    return {name: plain(text) for name, text in facts.items() if text}


def _file(path: Path, folder: Path) -> VersionFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return VersionFile(path.relative_to(folder).as_posix(), path.stat().st_size, digest)


# --- the workshop ---------------------------------------------------------------------------------


_log = logging.getLogger("servegate.conversions")
T = TypeVar("T")
TICK = 0.5  # seconds between two looks at the records
MOST_STARTS = 2
_SHORTEST, _LONGEST = 1.0, 30.0  # seconds between two attempts to write while nobody answers
_AWAY = (Unavailable, NoSpace)
_UNFINISHED = (JobState.RUNNING, JobState.PUBLISHING)


class Workshop:
    """Runs `slots` jobs at a time, none with 0. What is in `folder` was left by a crash."""

    def __init__(
        self,
        jobs: Jobs,
        converter: Converter,
        *,
        storage: ArtifactStorage,
        uploads: Uploads,
        versions: Records,
        publications: Publications,
        folder: Path,
        slots: int,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._jobs = jobs
        self._converter = converter
        self._storage = storage
        self._uploads = uploads
        self._versions = versions
        self._publications = publications
        self._folder = folder
        self._slots = slots
        self._pause = pause
        self._news = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<Workshop {len(self._running)} of {self._slots} at work>"

    def wake(self) -> None:
        """Look at the records now: one of them is new."""
        self._news.set()

    def stop(self, identity: str) -> None:
        """End the work at a job that is no longer wanted; nothing where there is none."""
        if task := self._running.get(identity):
            task.cancel()

    async def run(self) -> None:
        """Do what there is to do, for ever."""
        await asyncio.to_thread(_empty, self._folder)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                try:
                    await self.round(tasks)
                except (ServegateError, OSError) as error:
                    _log.warning("conversions cannot continue now: %s", error)
                try:
                    async with asyncio.timeout(TICK):
                        await self._news.wait()
                except TimeoutError:
                    pass

    async def round(self, tasks: asyncio.TaskGroup) -> None:
        """Take every job a step further that can go one; conversions begin in `tasks`."""
        for job in self._jobs.in_state(*_UNFINISHED):
            if job.id not in self._running:
                await (self._resume(job) if job.version is None else self._follow(job))
        waiting = [
            one for one in self._jobs.in_state(JobState.QUEUED) if one.id not in self._running
        ]
        for job in waiting[: max(self._slots - len(self._running), 0)]:
            task = tasks.create_task(self._work(job), name=f"conversion {job.id}")
            self._running[job.id] = task
            task.add_done_callback(partial(self._left, job.id))

    def _left(self, identity: str, _: asyncio.Task[None]) -> None:
        self._running.pop(identity, None)
        self.wake()

    # --- one job ---------------------------------------------------------------------------------

    async def _work(self, job: Job) -> None:
        """Take a job from the queue to its version; what goes wrong harms no other one."""
        try:
            await self._begun(job)
        except Exception:  # nothing could be written: it will be found interrupted
            _log.exception("conversion %s was interrupted", job.id)

    async def _begun(self, job: Job) -> None:
        """Convert and publish; however it ends, that is in the record then."""
        begun = await self._surely(
            lambda: self._jobs.move(
                job, JobState.RUNNING, By(SERVEGATE, "the conversion starts"), starts=job.starts + 1
            )
        )
        if begun is None:
            return
        folder = self._folder / job.id
        try:
            await asyncio.to_thread(_empty, folder)
            result = await self._converted(begun, folder)
            await self._publish(begun, result)
        except Exception as error:
            await self._fail(begun, error, folder)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _converted(self, job: Job, folder: Path) -> ConversionResult:
        """The model folder that has come of it, and the report."""
        asked, progress, hiding = job.asked, self._jobs.progress(job.id), Hiding(folder)
        given, work = folder / "given", folder / "work"
        upload = await self._uploads.require_whole(asked.upload)
        source = ConversionSource.of(upload.files, asked.request)
        await source.bring(self._storage, given)
        report = await self._converter.convert(
            replace(asked.request, source=source.path),
            given,
            work,
            partial(_relay, progress, hiding),
        )
        entry = await asyncio.to_thread(
            self._converter.write, work, report, name=asked.model, out=folder / "out"
        )
        await asyncio.to_thread(hiding.rewrite, entry)
        told = await asyncio.to_thread(hiding.report_in, entry)
        return await asyncio.to_thread(ConversionResult.of, told or report, entry)

    async def _publish(self, job: Job, result: ConversionResult) -> None:
        """Let it become a version; none when somebody has cancelled the job meanwhile."""
        by = By(SERVEGATE, "the model passed the gate")
        page = result.report.to_json()
        moved = await self._surely(lambda: self._jobs.report_on(job, JobState.PUBLISHING, by, page))
        if moved is None:
            return
        version = await self._surely(lambda: self._committed(moved, result), (Unavailable,))
        named = By(SERVEGATE, f"it becomes version {version.number}")
        await self._surely(
            lambda: self._jobs.move(moved, JobState.PUBLISHING, named, version=version.number)
        )

    async def _committed(self, job: Job, result: ConversionResult) -> PublishedVersion:
        """The version of a result; done again, it is the same one."""
        if version := self._made_by(job):
            return version
        files = [file for file, _ in result.files]
        upload = await self._uploads.begin(job.asked.model, files, job.author)
        for file, path in result.files:
            if not await self._storage.has(file.sha256, file.size):
                await self._storage.add_file(path, file)
        await self._uploads.require_whole(upload.id)
        by = By(job.author, f"conversion {job.id}")
        version, _ = await self._publications.begin(upload, result.ask(job), by)
        return version

    async def _fail(self, job: Job, error: Exception, folder: Path) -> None:
        """Write down why there is no version, with the report if there is one."""
        if not isinstance(error, ServegateError | OSError):
            _log.exception("conversion %s failed", job.id, exc_info=error)
        hiding = Hiding(folder)
        fault = hiding.event(fault_of(error))
        report = await asyncio.to_thread(hiding.report_in, folder / "work")
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        state = JobState.REFUSED if isinstance(error, GateRefused) else JobState.FAILED
        await self._end(job, state, fault, report)

    async def _end(
        self,
        job: Job,
        state: JobState,
        fault: Mapping[str, Any],
        report: ConversionReport | None = None,
    ) -> None:
        """The end of a job that is at work, if it still is."""
        page = None if report is None else report.to_json()
        present = self._jobs.find(job.id)
        if present is not None and present.state in _UNFINISHED:
            by = By(SERVEGATE, fault.get("what", "") if fault else "its version is published")
            await self._surely(lambda: self._jobs.end(present, state, by, fault=fault, report=page))

    # --- what an earlier process has left, and what the pipeline has done -----------------------

    async def _resume(self, job: Job) -> None:
        """Go on with a job that nobody works at."""
        if version := self._made_by(job):
            by = By(SERVEGATE, f"it has become version {version.number}")
            await self._jobs.move(job, JobState.PUBLISHING, by, version=version.number)
        elif job.starts < MOST_STARTS:
            by = By(SERVEGATE, "it was interrupted and starts again")
            await self._jobs.move(job, JobState.QUEUED, by)
        else:
            await self._end(job, JobState.FAILED, fault_of(failed("interrupted")))

    async def _follow(self, job: Job) -> None:
        """End a job whose version is published, or will not be."""
        version = self._versions.find(job.asked.model, job.version or 0)
        if version is not None and version.state in IN_PROGRESS:
            return
        if version is not None and VersionState.PUBLISHED.value in version.times:
            await self._end(job, JobState.DONE, {})
            if job.asked.upload not in needed_uploads(self._versions.decisions):
                await self._uploads.forget(job.asked.upload)
            return
        why = "its record was deleted" if version is None else version.reason
        await self._end(job, JobState.FAILED, fault_of(failed("not_published", why)))

    def _made_by(self, job: Job) -> PublishedVersion | None:
        """The version that this run of the job has made."""
        begun = job.times.get(JobState.RUNNING.value, 0.0)
        for version in self._versions.of(job.asked.model):
            is_own = version.tags.get(ConversionResult.TAG) == job.id
            if is_own and version.times.get(VersionState.UPLOADED.value, 0.0) >= begun:
                return version
        return None

    async def _surely(
        self, work: Callable[[], Awaitable[T]], away: tuple[type[ServegateError], ...] = _AWAY
    ) -> T:
        """Do it, again and again while the store or the storage does not take it."""
        length = _SHORTEST
        while True:
            try:
                return await work()
            except away as error:
                _log.warning("a conversion is retried in %g s: %s", length, error)
                await self._pause(length)
                length = min(length * 2, _LONGEST)


def _relay(progress: ConversionProgress, hiding: Hiding, event: Mapping[str, Any]) -> None:
    """Tell what the converter tells, but for its end: the state of the job says that."""
    if event.get("type") not in ("failed", "done"):
        progress.tell(hiding.event(event))


def _empty(folder: Path) -> None:
    """Make the folder, without anything in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
