"""The commands and questions about conversions, for the admin API.

Who may ask is decided there. What may be converted needs no permission of its own: a source is a
program, but of its operators only those run that have a counterpart in ONNX, none that reads or
writes files, in a child process without secrets and under limits; and what is published is ONNX,
which brings no code. Where that is not enough, `slots` is 0 and nothing is converted.
"""

import asyncio
from collections.abc import Callable
from types import MappingProxyType

from serve.control.models import By
from serve.control.stored_conversions import ENDED
from serve.control.uploads.upload import UploadKind
from serve.control.uploads.uploads import Uploads
from serve.core.errors import Conflict, Invalid, NotServed, Unavailable
from serve.core.names import check_label, check_model_name
from serve.workbench.conversion.queue.job import AGAIN, ConversionOrder, Job, JobState
from serve.workbench.conversion.queue.jobs import Jobs
from serve.workbench.conversion.queue.sources import ConversionSource
from serve.workbench.conversion.queue.workshop import Converter, Workshop
from serve.workbench.conversion.report import ConversionReport

MOST_WAITING = 32


class Conversions:
    """Asks for conversions, cancels them, and asks for them again. `new_id` gives a job's id."""

    def __init__(
        self,
        jobs: Jobs,
        workshop: Workshop,
        converter: Converter,
        *,
        uploads: Uploads,
        slots: int,
        new_id: Callable[[], str],
    ) -> None:
        self.jobs = jobs
        self._workshop = workshop
        self._converter = converter
        self._uploads = uploads
        self._slots = slots
        self._new_id = new_id
        self._asking = asyncio.Lock()  # from the look at the queue to the place in it

    def __repr__(self) -> str:
        return f"<Conversions {self.jobs!r} {self._workshop!r}>"

    async def run(self) -> None:
        """Work the jobs off, for ever."""
        await self._workshop.run()

    async def begin(self, asked: ConversionOrder, by: By) -> Job:
        """Put a conversion into the queue.

        `NotServed` where there are none, `UnknownUpload`, `Conflict` for one that is not whole,
        `Invalid` for one that is no source, `Unavailable` when the queue is full.
        """
        check_model_name(asked.model)
        for label in asked.labels:
            check_label(label)
        async with self._asking:
            self._require_room()
            await self._require_source(asked)
            job = await self.jobs.create(Job(self._new_id(), asked, by.author), by)
        self._workshop.wake()
        return job

    async def cancel(self, identity: str, by: By) -> Job:
        """Stop a job; again is no mistake. `Conflict` once its result is being published."""
        while True:  # a job that goes on meanwhile is looked at again
            job = self.jobs.get(identity)
            if job.state is JobState.CANCELLED:
                return job
            if job.state in ENDED or job.state is JobState.PUBLISHING:
                number = "" if job.version is None else f"@{job.version}"
                raise Conflict(
                    f"conversion '{identity}' cannot be cancelled",
                    why=f"it is {job.state.value}",
                    try_this=f"run servegate model rm {job.asked.model}{number}" if number else "",
                )
            cancelled = await self.jobs.end(job, JobState.CANCELLED, by)
            if cancelled is not None:
                self._workshop.stop(identity)
                return cancelled

    async def retry(self, identity: str, by: By) -> Job:
        """Put a job that came to nothing into the queue again; `UnknownUpload` when it is gone."""
        job = self.jobs.get(identity)
        if job.state not in AGAIN:
            raise Conflict(
                f"conversion '{identity}' cannot be retried",
                why=f"it is {job.state.value}",
            )
        async with self._asking:
            self._require_room()
            await self._require_source(job.asked)
            again = await self.jobs.move(
                job,
                JobState.QUEUED,
                by,
                author=by.author,
                starts=0,
                version=None,
                fault=MappingProxyType({}),
                papers="",
                has_report=False,
            )
        if again is None:
            raise Conflict(
                f"conversion '{identity}' has just changed", try_this="repeat the request"
            )
        self._workshop.wake()
        return again

    async def page(self, identity: str) -> str:
        """The report as HTML; `NotFound` where there is none."""
        return self._converter.render(ConversionReport.from_json(await self.jobs.report(identity)))

    def _require_room(self) -> None:
        if self._slots == 0:
            raise NotServed(
                "this gateway does not convert models",
                why="conversions are turned off",
                try_this="run servegate convert on your machine, or servegate up --conversions 1",
            )
        if len(self.jobs.in_state(JobState.QUEUED)) >= MOST_WAITING:
            raise Unavailable(
                f"the queue of conversions is full ({MOST_WAITING})",
                try_this="wait until some are done, or run servegate convert cancel ID",
            )

    async def _require_source(self, asked: ConversionOrder) -> None:
        upload = await self._uploads.require_whole(asked.upload)
        if upload.kind is not UploadKind.SOURCE:
            raise Invalid(
                f"upload '{upload.id}' is not a source",
                why="it is a version",
                try_this='send POST /api/uploads with "kind": "source"',
            )
        ConversionSource.of(upload.files, asked.request)
