"""Evaluations over the admin API: asked for, followed, stopped, resumed, and looked at by row."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.core.errors import ServegateError
from serve.workbench.evaluation.api.datasets import image_of
from serve.workbench.evaluation.api.views import (
    EvaluationBegun,
    EvaluationBody,
    EvaluationLine,
    EvaluationView,
    GateView,
    ResultsView,
    ResultView,
    fields_of,
    request_of,
)
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.evaluation import Evaluation
from serve.workbench.evaluation.evaluations import Evaluations
from serve.workbench.evaluation.exports import Filter, csv_pieces, page_of, slices_of
from serve.workbench.evaluation.results import Bucket, OutputKind, RowResult

MOST_ROWS = 200  # of a page
HEARTBEAT = 10.0  # seconds without news until something is sent all the same
LONGEST = 600.0  # seconds of one stream: the key is looked at again with the next
PAUSE = 0.25  # seconds between two events of a stream
_PATH = "/api/evaluations/{id}"
_AT_ONCE = 500  # rows of an export that are written together
_STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}

router = APIRouter(tags=["evaluations"], responses={404: {"model": schemas.ErrorBody}})
Id = Annotated[str, Path(max_length=100)]
_CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": schemas.ErrorBody}}


@router.post(
    "/api/evaluations", status_code=202, summary="Start an evaluation of one or two versions"
)
async def begin_evaluation(
    body: EvaluationBody, control: InControl, who: ByWhom
) -> EvaluationBegun:
    """The evaluation waits in a queue. One runs at a time."""
    begun = await control.service(Evaluations).begin(request_of(body), who.author)
    return EvaluationBegun(id=begun.id, state=begun.state)


@router.get("/api/evaluations", summary="List evaluations")
async def list_evaluations(control: InControl) -> list[EvaluationLine]:
    """Returns all evaluations that are kept, the newest first."""
    return [
        EvaluationLine(**fields_of(one))
        for one in reversed(await control.service(Evaluations).all())
    ]


@router.get(_PATH, summary="Show an evaluation")
async def show_evaluation(id: Id, control: InControl) -> EvaluationView:
    """Returns its progress and all numbers so far."""
    report = await control.service(Evaluations).report(id)
    return EvaluationView(**fields_of(await control.service(Evaluations).get(id)), report=report)


@router.get(
    _PATH + "/events",
    summary="Follow an evaluation",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events named `progress`: the evaluation as in the list, "
            "immediately and after each change, until it ends.",
            "content": {"text/event-stream": {}},
        }
    },
)
async def follow_evaluation(id: Id, control: InControl) -> Response:
    """The stream ends with the evaluation."""
    await control.service(Evaluations).get(id)
    events = _events(control.service(Evaluations).watch(id))
    return StreamingResponse(events, media_type="text/event-stream", headers=_STREAM)


@router.post(_PATH + "/cancel", summary="Cancel an evaluation", responses=_CONFLICT)
async def cancel_evaluation(id: Id, control: InControl, who: ByWhom) -> EvaluationLine:
    """Keeps the results so far. The evaluation can be resumed."""
    return EvaluationLine(**fields_of(await control.service(Evaluations).cancel(id)))


@router.post(
    _PATH + "/resume", status_code=202, summary="Resume an evaluation", responses=_CONFLICT
)
async def resume_evaluation(id: Id, control: InControl, who: ByWhom) -> EvaluationLine:
    """Continues with the rows that have no response yet, including those that failed."""
    return EvaluationLine(**fields_of(await control.service(Evaluations).resume(id)))


@router.delete(_PATH, status_code=204, summary="Delete an evaluation", responses=_CONFLICT)
async def remove_evaluation(id: Id, control: InControl, who: ByWhom) -> Response:
    """Deletes it with all results. A queued or running evaluation cannot be deleted."""
    await control.service(Evaluations).remove(id)
    return Response(status_code=204)


@router.get(_PATH + "/gates", summary="Check other gates")
async def judge_gates(
    id: Id,
    control: InControl,
    gate: Annotated[
        list[str], Query(min_length=1, max_length=50, description="Conditions to check.")
    ],
) -> list[GateView]:
    """Checks gates against the results, without a new evaluation."""
    judged = await control.service(Evaluations).judge(id, gate)
    return [GateView(**asdict(one)) for one in judged]


@router.get(_PATH + "/rows", summary="List the rows of an evaluation")
async def list_results(
    id: Id,
    control: InControl,
    bucket: Bucket | None = None,
    slice: Annotated[
        list[str], Query(max_length=10, description="Slice in the form NAME=VALUE.")
    ] = [],  # noqa: B006
    label: Annotated[str, Query(max_length=200)] = "",
    predicted: Annotated[
        str, Query(max_length=2000, description="Class predicted by either version.")
    ] = "",
    start: Annotated[int, Query(alias="from", ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
) -> ResultsView:
    """Returns the evaluated rows in their order."""
    chosen = Filter(bucket, slices_of(slice), label, predicted)
    evaluation, results = await control.service(Evaluations).results(id)
    kind = evaluation.kind
    found = await asyncio.to_thread(lambda: [one for one in results if chosen.passes(one, kind)])
    images = await _images(control, evaluation)
    return ResultsView(
        total=len(found),
        rows=[
            ResultView(**page_of(one, kind), image=images.format(row=one.row))
            for one in found[start : start + count]
        ],
    )


@router.get(
    _PATH + "/export.csv",
    summary="Export the rows as CSV",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}}},
)
async def export_csv(id: Id, control: InControl) -> Response:
    """Returns all evaluated rows."""
    evaluation, results = await control.service(Evaluations).results(id)
    pieces = _together(csv_pieces(results, evaluation.kind))
    return StreamingResponse(pieces, media_type="text/csv", headers=_named(id, "csv"))


@router.get(
    _PATH + "/export.json",
    summary="Export the rows as JSON",
    response_class=Response,
    responses={200: {"content": {"application/json": {}}}},
)
async def export_json(id: Id, control: InControl) -> Response:
    """Returns the evaluation, its report and all evaluated rows."""
    view = await show_evaluation(id, control)
    evaluation, results = await control.service(Evaluations).results(id)
    pieces = _together(_json_pieces(view, results, evaluation.kind))
    return StreamingResponse(pieces, media_type="application/json", headers=_named(id, "json"))


async def _images(control: AdminContext, evaluation: Evaluation) -> str:
    """Where the picture of a row is, with `{row}` for its number; empty where there are none."""
    request = evaluation.request
    try:
        dataset = await control.service(Datasets).get(request.dataset, request.revision)
    except ServegateError:
        return ""
    if dataset.digest != evaluation.digest:  # another one of this name by now
        return ""
    return image_of(dataset, 0).replace("/rows/0/", "/rows/{row}/")


async def _events(news: AsyncIterator[Evaluation]) -> AsyncIterator[str]:
    """The stream; a comment now and then shows that somebody is there."""
    waiting: asyncio.Task[Evaluation] | None = None
    until = asyncio.get_running_loop().time() + LONGEST
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(_next(news))
            done, _ = await asyncio.wait([waiting], timeout=HEARTBEAT)
            if not done:
                yield ": nothing new\n\n"
                if asyncio.get_running_loop().time() > until:
                    return
                continue
            try:
                page = EvaluationLine(**fields_of(waiting.result()))
            except (StopAsyncIteration, ServegateError):
                return
            waiting = None
            yield f"event: progress\ndata: {page.model_dump_json()}\n\n"
            if asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(PAUSE)
    finally:
        if waiting is not None:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, ServegateError):
                await waiting


async def _next(news: AsyncIterator[Evaluation]) -> Evaluation:
    return await anext(news)


def _json_pieces(view: EvaluationView, results: list[RowResult], kind: OutputKind) -> Iterator[str]:
    yield '{"evaluation":' + view.model_dump_json() + ',"rows":['
    for place, one in enumerate(results):
        yield ("," if place else "") + json.dumps(page_of(one, kind))
    yield "]}\n"


async def _together(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Many small pieces as fewer, made in a thread."""
    while text := await asyncio.to_thread(_some, pieces):
        yield text


def _some(pieces: Iterator[str]) -> str:
    return "".join(piece for _, piece in zip(range(_AT_ONCE), pieces, strict=False))


def _named(identity: str, suffix: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="evaluation-{identity}.{suffix}"'}
