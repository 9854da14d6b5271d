"""A scene for conversions: a publishing control plane, and a converter whose child is scripted.

The script is the source itself, so each upload says what comes of it, line by line:

| line           | the child process                                  |
|----------------|----------------------------------------------------|
| `stage NAME`   | tells that stage                                   |
| `hang`         | waits until it is killed                           |
| `fail CODE`    | tells that fault, and ends; no report is there     |
| `refuse CODE`  | the same, with a report                            |
| `die`          | ends without a word                                |
| `bug`          | is never started: the converter itself has an error|
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from control.publishing import ADA, Failing, Scene, files

from serve.control.uploads.upload import Upload, UploadKind
from serve.core.versions import VersionFile
from serve.processes import Child, Program, spawn
from serve.workbench.conversion.events import OnEvent, event_of, failure_of
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.queue.conversions import Conversions
from serve.workbench.conversion.queue.job import ConversionOrder, Job, JobState
from serve.workbench.conversion.queue.jobs import Jobs
from serve.workbench.conversion.queue.workshop import Workshop
from serve.workbench.conversion.report import FILE, ConversionReport, GateStep, StepResult
from serve.workbench.conversion.request import ConversionRequest

from .. import reports

GOOD = b"stage import\nstage convert\n"
HANGS = b"stage convert\nhang\n"
CHILD = """
import json, signal, sys
def tell(**event):
    print(">" + json.dumps(event), flush=True)
for line in open(sys.argv[1]):
    word, _, rest = line.strip().partition(" ")
    if word == "stage":
        tell(type="stage", stage=rest, text="it is doing " + rest + " in " + sys.argv[1])
    elif word == "hang":
        signal.pause()
    elif word == "die":
        sys.exit(3)
    elif word in ("fail", "refuse"):
        tell(type="failed", code=rest, what="no", why="because", try_this="", operator="Op",
             node="n")
        sys.exit(1)
"""


class ScriptedConverter:
    """Stands for the converter. `model` are the bytes that come of every source."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.asked: list[tuple[ConversionRequest, list[str]]] = []
        self.model = b"a converted model"

    async def convert(
        self, request: ConversionRequest, base: Path, work: Path, on_event: OnEvent
    ) -> ConversionReport:
        self.asked.append((request, _tree(base)))
        if (base / request.source).read_bytes() == b"bug":
            raise RuntimeError("nobody has thought of this")
        await asyncio.to_thread(work.mkdir)
        told: list[dict[str, Any]] = []
        program = Program(
            name="scripted",
            argv=(sys.executable, "-c", CHILD, str(base / request.source)),
            env=dict(os.environ),
            grace=0.0,
        )

        def hear(line: str) -> None:
            if event := event_of(line):
                told.append(event)
                on_event(event)

        async with spawn(program, on_line=hear) as child:
            self.children.append(child)
            ended = await child.wait()
        if ended.code == 3:
            raise failed("converter_crashed", "it died")
        last = told[-1] if told else {}
        refused = last.get("code") == "numbers_differ"
        if last.get("type") != "failed" or refused:
            text = report(request, passed=not refused).to_bytes()
            await asyncio.to_thread((work / FILE).write_bytes, text)
        if last.get("type") == "failed":
            raise failure_of(last)
        return report(request)

    def write(self, work: Path, report: ConversionReport, *, name: str, out: Path) -> Path:
        for path, data in files(self.model).items():
            target = out / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        page = report.to_json() | {"command": f"servegate convert onnx s --out {out}"}
        (out / name / FILE).write_text(json.dumps(page))
        return out / name

    def render(self, report: ConversionReport) -> str:
        return f"<p>{report.request.source}</p>"


def report(request: ConversionRequest, *, passed: bool = True) -> ConversionReport:
    step = StepResult(GateStep.NUMBERS, passed, "as it is", "" if passed else "numbers_differ")
    versions = {"tensorflow": "2.21.0", "tf2onnx": "1.17.0"}
    return reports.report(step, request=request, source={"kind": "onnx"}, versions=versions)


class Jobbing:
    """Conversions of a scene. Everything is in `folder`: a second one is a restart."""

    def __init__(self, folder: Path, *, slots: int = 1) -> None:
        self.scene = Scene(folder)
        self.converter = ScriptedConverter()
        self.folder = folder / "conversions"
        self.pauses: list[float] = []
        self.by = ADA
        self.jobs = Jobs(
            self.scene.plane.store,
            self.scene.storage,
            decisions=lambda: self.scene.plane.decisions,
            reload=self.scene.plane.reload,
            wall=self.scene.wall,
            collecting=self.scene.records.collecting,
        )
        self.failing = Failing(self.jobs)  # type: ignore[arg-type]
        self.workshop = Workshop(
            self.failing,  # type: ignore[arg-type]
            self.converter,
            storage=self.scene.storage,
            uploads=self.scene.uploads,
            versions=self.scene.records,
            publications=self.scene.publications,
            folder=self.folder,
            slots=slots,
            pause=self._pause,
        )
        ids = count(len(list(folder.glob("*"))) * 100)  # another process draws others
        self.conversions = Conversions(
            self.jobs,
            self.workshop,
            self.converter,
            uploads=self.scene.uploads,
            slots=slots,
            new_id=lambda: f"job-{next(ids)}",
        )

    async def _pause(self, seconds: float) -> None:
        """What was away comes back after three of them."""
        self.pauses.append(seconds)
        if len(self.pauses) == 3:
            self.failing.errors.clear()
        await asyncio.sleep(0)

    async def upload(
        self, script: bytes = GOOD, *, kind: UploadKind = UploadKind.SOURCE, **beside: bytes
    ) -> Upload:
        """A source that is whole: a scripted `model.onnx`, and what is beside it."""
        listed = []
        for path, data in {"model.onnx": script, **beside}.items():
            size, sha256 = await self.scene.storage.add_bytes(data)
            listed.append(VersionFile(path, size, sha256))
        return await self.scene.uploads.begin("m", listed, "ada", kind)

    async def ask(self, script: bytes = GOOD, **asked: Any) -> Job:
        """Upload and ask for a conversion; nothing is worked off yet."""
        upload = await self.upload(script)
        return await self.conversions.begin(
            ConversionOrder(upload.id, "m", ConversionRequest(""), **asked), ADA
        )

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The workshop and the pipeline at work; a process that stops ends both."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self.conversions.run()),
                tasks.create_task(self.scene.publications.run()),
            ]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    async def until(self, job: Job, *states: JobState) -> Job:
        """The job in one of these states; without any, when it has ended."""
        after = 0
        while True:
            found = self.jobs.get(job.id)
            if found.state in states or (not states and found.has_ended):
                return found
            news = await self.jobs.news(job.id, after, 20.0)
            assert news is not None, f"{found} does not go on"
            after = news[1][-1]["number"] if news[1] else after

    async def converted(self, script: bytes = GOOD, **asked: Any) -> Job:
        """Ask, and work until it has ended."""
        async with self.working():
            return await self.until(await self.ask(script, **asked))

    async def told(self, job: Job) -> list[str]:
        """What a job has told, in short."""
        events = await self.jobs.events(job.id)
        return [str(event.get("state") or event.get("stage") or event["type"]) for event in events]

    async def revisions(self, job: Job) -> list[Mapping[str, Any]]:
        """Who has changed it, the oldest first."""
        return await self.scene.revisions("conversion", job.id)


def _tree(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in found)
