"""Conversions over the admin API: jobs that make a version of a source that was uploaded."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.admin.api.long_polls import unless_left
from serve.admin.api.pages import PAGE_HEADERS
from serve.core.errors import Invalid, NotFound
from serve.core.versions import CONVERSION
from serve.workbench.conversion.queue.conversions import Conversions
from serve.workbench.conversion.queue.job import ConversionOrder, Job, JobState
from serve.workbench.conversion.report import ConversionReport
from serve.workbench.conversion.report_page import render_html
from serve.workbench.conversion.request import ConversionRequest as Wanted
from serve.workbench.conversion.request import Precision

LONGEST_POLL = 25.0  # seconds
_PATH = "/api/conversions/{id}"
_VERSION = "/api/models/{model}/versions/{number}"
_LARGEST_REPORT = 16 << 20  # bytes

reports = APIRouter(tags=["versions"], responses={404: {"model": schemas.ErrorBody}})
router = APIRouter(tags=["conversions"], responses={404: {"model": schemas.ErrorBody}})
Id = Annotated[str, Path(max_length=100)]
Word = Annotated[str, Field(max_length=200)]
Name = Annotated[str, Field(max_length=1000)]


class ToleranceBody(BaseModel):
    """The tolerance of one output. `top1` is the share of rows with the same highest score."""

    model_config = ConfigDict(extra="forbid")
    atol: float | None = Field(default=None, ge=0, le=1e15, allow_inf_nan=False)
    rtol: float | None = Field(default=None, ge=0, le=1e15, allow_inf_nan=False)
    top1: float | None = Field(default=None, gt=0, le=1)


class RequestBody(BaseModel):
    """How to convert. `samples` and `labelled` are paths within the upload.

    `max_drop` is the largest allowed loss of the metric on the labelled rows. `tolerances` are by
    output, with an empty name for all others. `golden` is the number of rows that become the
    contract. `accept_unverified` publishes an INT8 model without verification, and marks it.
    """

    model_config = ConfigDict(extra="forbid")
    signature: Name = ""
    precision: Precision = Precision.FP32
    nchw: list[Name] = Field(default=[], max_length=100)
    samples: Name = ""
    labelled: Name = ""
    max_drop: float = Field(default=0.005, ge=0, le=1)
    tolerances: dict[Name, ToleranceBody] = Field(default={}, max_length=1000)
    golden: int = Field(default=4, ge=1, le=64)
    max_batch_size: int | None = Field(default=None, ge=0, le=4096)
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    accept_unverified: bool = False


class ConversionBody(BaseModel):
    """The source (an upload of the kind `source`), and the options of the new version.

    `labels` point to the version when it is ready. With `live`, all calls then go to it. `again`
    makes a version even if one with this content exists.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "upload": "4f2a91c0",
                    "model": "digits",
                    "request": {"precision": "fp16", "samples": "samples.npz"},
                    "labels": ["candidate"],
                }
            ]
        },
    )
    upload: str = Field(max_length=100)
    model: str = Field(max_length=300)
    request: RequestBody = RequestBody()
    labels: list[Word] = Field(default=[], max_length=20)
    live: bool = False
    again: bool = False


class ConversionBegun(BaseModel):
    """The queued job."""

    id: str
    state: JobState


class FaultView(BaseModel):
    """Why there is no version. `operator` and `node` name the cause, if known."""

    code: str
    what: str
    why: str = ""
    try_this: str = ""
    operator: str = ""
    node: str = ""


class ConversionLine(BaseModel):
    """One job in a list. `stage` is its current step, and `version` its result."""

    id: str
    model: str
    upload: str
    state: JobState
    stage: str
    version: int | None
    author: str
    created: datetime
    times: dict[str, datetime]
    fault: FaultView | None
    has_report: bool


class ConversionView(ConversionLine):
    """One job with its request, and its events so far.

    `starts` is the number of times it was started: more than once if the control plane was
    restarted.
    """

    request: dict[str, Any]
    labels: list[str]
    live: bool
    again: bool
    starts: int
    events: list[dict[str, Any]]


class EventsView(BaseModel):
    """The events of a job above a number, and its state. Use `after` in the next request."""

    state: JobState
    stage: str
    after: int
    events: list[dict[str, Any]]


@router.post("/api/conversions", status_code=202, summary="Convert an uploaded source")
async def begin_conversion(
    body: ConversionBody, control: InControl, who: ByWhom
) -> ConversionBegun:
    """The job waits in a queue. Its result is verified, and then published like any
    version.
    """
    page = body.request.model_dump(mode="json")
    asked = ConversionOrder(
        body.upload,
        body.model,
        Wanted.from_json({"source": "", **page}),
        tuple(dict.fromkeys(body.labels)),
        body.live,
        body.again,
    )
    job = await control.service(Conversions).begin(asked, who)
    return ConversionBegun(id=job.id, state=job.state)


@router.get("/api/conversions", summary="List conversions")
async def list_conversions(control: InControl) -> list[ConversionLine]:
    """Returns all jobs that are kept, the newest first."""
    return [_line(control, job) for job in reversed(control.service(Conversions).jobs.all())]


@router.get(_PATH, summary="Show one conversion")
async def show_conversion(id: Id, control: InControl) -> ConversionView:
    """Returns its progress, its events, and the reason if it failed."""
    return await _view(control, control.service(Conversions).jobs.get(id))


@router.get(
    _PATH + "/events",
    summary="Poll the events of a conversion",
    response_model=EventsView,
    responses={204: {"description": "No new event within the time."}},
)
async def poll_events(
    id: Id,
    request: Request,
    control: InControl,
    after: Annotated[int, Query(ge=0, description="Return only events above this number.")] = 0,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_POLL, description="Longest wait, in seconds.")
    ] = LONGEST_POLL,
) -> Response:
    """Returns as soon as there are new events, and immediately if the job has ended."""
    jobs = control.service(Conversions).jobs
    found = await unless_left(request, jobs.news(id, after, wait))
    if found is None:
        return Response(status_code=204)
    job, events = found
    view = EventsView(
        state=job.state,
        stage=_stage(control, job),
        after=events[-1]["number"] if events else after,
        events=[dict(event) for event in events],
    )
    return JSONResponse(view.model_dump(mode="json"))


@router.get(_PATH + "/report", summary="Get the report of a conversion as JSON")
async def fetch_report(id: Id, control: InControl) -> dict[str, Any]:
    """Returns `conversion.json` with all measurements, even if the verification failed."""
    return dict(await control.service(Conversions).jobs.report(id))


@router.get(
    _PATH + "/report.html",
    summary="Show the report of a conversion",
    response_class=HTMLResponse,
)
async def read_report(id: Id, control: InControl) -> HTMLResponse:
    """Returns the report as one HTML page without scripts."""
    return HTMLResponse(await control.service(Conversions).page(id), headers=PAGE_HEADERS)


@router.post(
    _PATH + "/cancel",
    summary="Cancel a conversion",
    responses={409: {"model": schemas.ErrorBody, "description": "The job has already ended."}},
)
async def cancel_conversion(id: Id, control: InControl, who: ByWhom) -> ConversionView:
    """Stops the process and removes its files. The job can be retried."""
    return await _view(control, await control.service(Conversions).cancel(id, who))


@router.post(
    _PATH + "/retry",
    status_code=202,
    summary="Retry a conversion",
    responses={409: {"model": schemas.ErrorBody, "description": "The job has not failed."}},
)
async def retry_conversion(id: Id, control: InControl, who: ByWhom) -> ConversionView:
    """Queues the same job again, if its upload still exists."""
    return await _view(control, await control.service(Conversions).retry(id, who))


async def _view(control: AdminContext, job: Job) -> ConversionView:
    body = job.to_body()
    request = {name: value for name, value in body["request"].items() if name != "source"}
    events = await control.service(Conversions).jobs.events(job.id)
    return ConversionView(
        **_fields(control, job),
        request=request,
        labels=body["labels"],
        live=job.asked.live,
        again=job.asked.again,
        starts=job.starts,
        events=[dict(event) for event in events],
    )


def _line(control: AdminContext, job: Job) -> ConversionLine:
    return ConversionLine(**_fields(control, job))


def _fields(control: AdminContext, job: Job) -> Mapping[str, Any]:
    return {
        "id": job.id,
        "model": job.asked.model,
        "upload": job.asked.upload,
        "state": job.state,
        "stage": _stage(control, job),
        "version": job.version,
        "author": job.author,
        "created": _time(job.created),
        "times": {state: _time(at) for state, at in job.times.items()},
        "fault": FaultView(**job.fault) if job.fault else None,
        "has_report": job.has_report,
    }


def _stage(control: AdminContext, job: Job) -> str:
    """What it does now; empty unless it runs."""
    is_running = job.state is JobState.RUNNING
    return control.service(Conversions).jobs.progress(job.id).stage if is_running else ""


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


@reports.get(
    _VERSION + "/conversion/report.html",
    summary="Show the conversion report of a version",
    response_class=HTMLResponse,
)
async def read_conversion(model: str, number: int, control: InControl) -> HTMLResponse:
    """Returns the report as one HTML page without scripts."""
    control.publications.get(model, number)
    manifest = await control.storage.manifest(model, number)
    file = next((file for file in manifest.files if file.path == CONVERSION), None)
    if file is None or not await control.storage.has(file.sha256, file.size):
        raise NotFound(f"version {number} of model '{model}' has no conversion report")
    if file.size > _LARGEST_REPORT:
        raise Invalid("the conversion report is too large to show")
    text = b"".join([piece async for piece in control.storage.stream(file.sha256)])
    return HTMLResponse(await asyncio.to_thread(_drawn, text), headers=PAGE_HEADERS)


def _drawn(text: bytes) -> str:
    try:
        return render_html(ConversionReport.from_json(json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("the conversion report cannot be read", why=repr(error)) from error
