"""How a version is batched and what comes of it, over the admin API."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from serve.admin.api import schemas
from serve.admin.api.context import InControl
from serve.control.batching.hints import BatchingHint
from serve.control.batching.observer import KEPT
from serve.control.batching.overview import Overview
from serve.control.batching.situation import ENOUGH, points
from serve.control.batching.steps import EnsembleSteps
from serve.triton.batching_text import meaning

_PATH = "/api/models/{model}/versions/{number}/batching"

router = APIRouter(tags=["versions"], responses={404: {"model": schemas.ErrorBody}})


class MeaningView(BaseModel):
    """A field of the configuration, and its meaning."""

    field: str
    text: str


class BatchView(BaseModel):
    """Executions of one batch size in the window. `seconds` is the mean duration, including input
    and output.
    """

    rows: int
    executions: int
    share: float
    seconds: float


class WindowView(BaseModel):
    """The last few minutes, over all replicas. `seconds` is the longest observation of a replica.

    `rate` is successful calls per second. `queue`, `compute` and `whole` are seconds per call
    within Triton, `took` the latency at the gateway. `busy` is the share of time in which
    instances compute, and `occupancy` the mean executed batch divided by max_batch_size. Both are
    from 0 to 1, or null if unknown. `rejected` calls were refused by Triton, mostly because a queue
    was full. `pending` calls are waiting now.
    """

    seconds: float
    replicas: dict[str, float]
    calls: int
    failures: int
    rejected: int
    pending: int
    rate: float
    rate_per_replica: float
    rows_per_call: float
    executions: int
    rows_per_execution: float
    occupancy: float | None
    busy: float | None
    queue: float
    compute: float
    whole: float
    took: float | None
    hits: int
    misses: int
    batches: list[BatchView]


class ServiceView(BaseModel):
    """A linear model of the executions: seconds = `fixed` + `per_row` · rows.

    `allowed` is the largest batch with which a call that arrives at the worst moment still meets
    the objective, or null.
    """

    fixed: float
    per_row: float
    scatter: float
    allowed: int | None


class AdviceView(BaseModel):
    """A possible problem, its reason, and the command that fixes it."""

    rule: str
    field: str
    why: str
    fix: str


class BatchingHintView(BaseModel):
    """How the calls differ from those that the configuration was tuned for. `since` is in seconds
    since the epoch.
    """

    hint: str
    why: str
    fix: str
    since: float


class StepView(BaseModel):
    """One step. `path` is its position, `asked` how clients call it, and `share` its part of the
    total time.

    `others` of its `calls` came from other models or clients; null if unknown.
    """

    path: str
    name: str
    version: int
    asked: str
    calls: int
    others: int | None
    queue: float
    compute: float
    rows_per_execution: float
    share: float | None


class PartsView(BaseModel):
    """The parts of a model (`ensemble` or `bls`), and what is unknown about them."""

    kind: str
    steps: list[StepView]
    limit: str


class BatchingView(BaseModel):
    """How a version is batched, with the measurements of the last `kept` seconds.

    `name` is its name in Triton. `config` is the configuration in force, empty if no replica
    reports it, and `revised` the fields that were changed. `enough` is the number of calls that
    advice needs.
    """

    model: str
    version: int
    name: str
    shared_with: list[int]
    replicas: list[str]
    reason: str
    config: str
    meaning: list[MeaningView]
    revised: list[str]
    tuned: dict[str, Any]
    objective: str
    max_batch_size: int
    instances: int
    instances_told: bool
    kept: float
    enough: int
    is_enough: bool
    window: WindowView
    service: ServiceView | None
    advice: list[AdviceView]
    hints: list[BatchingHintView]
    parts: PartsView | None


@router.get(_PATH, summary="Show the batching of a version")
async def show_batching(model: str, number: int, control: InControl) -> BatchingView:
    """Returns the configuration in words, the batches of the last few minutes, advice and hints.

    The control plane reads the numbers from each replica every few seconds, and for this request.
    They restart from zero when a replica loads the version.
    """
    found = await control.overviews.show(model, number)
    situation = found.situation
    meanings = meaning(found.configuration) if found.configuration else ()
    return BatchingView(
        model=model,
        version=number,
        name=found.name,
        shared_with=list(found.shared_with),
        replicas=list(found.replicas),
        reason=found.reason,
        config=found.config,
        meaning=[MeaningView(field=one.field, text=one.text) for one in meanings],
        revised=sorted(found.revised.fields),
        tuned=dict(found.revised.tuned),
        objective=str(situation.objective or ""),
        max_batch_size=situation.setup.max_batch_size,
        instances=situation.setup.instances,
        instances_told=found.is_told,
        kept=KEPT,
        enough=ENOUGH,
        is_enough=situation.is_enough,
        window=_window(found),
        service=_service(found),
        advice=[
            AdviceView(rule=one.rule, field=one.field, why=one.why, fix=one.fix)
            for one in found.advice
        ],
        hints=[hint_view(one) for one in found.hints],
        parts=None if found.parts is None else _parts(found.parts),
    )


def hint_view(one: BatchingHint) -> BatchingHintView:
    """A hint as it is told."""
    return BatchingHintView(hint=one.hint, why=one.why, fix=one.fix, since=one.since)


def _window(found: Overview) -> WindowView:
    situation, window = found.situation, found.window
    counted = window.counted
    known = points(window)
    every = sum(point.executions for point in known)
    largest = situation.setup.max_batch_size
    return WindowView(
        seconds=window.span,
        replicas=dict(window.replicas),
        calls=counted.calls,
        failures=counted.failures,
        rejected=int(situation.took.refused),
        pending=window.pending,
        rate=window.rate,
        rate_per_replica=window.rate_per_replica,
        rows_per_call=window.rows_per_call,
        executions=counted.executions,
        rows_per_execution=window.rows_per_execution,
        occupancy=window.rows_per_execution / largest if largest and every else None,
        busy=situation.busy if every and not situation.batched.ensemble else None,
        queue=window.queue,
        compute=window.compute,
        whole=window.whole,
        took=situation.took.mean if situation.took.calls else None,
        hits=counted.hits,
        misses=counted.misses,
        batches=[
            BatchView(
                rows=point.rows,
                executions=int(point.executions),
                share=point.executions / every,
                seconds=point.seconds,
            )
            for point in known
        ],
    )


def _service(found: Overview) -> ServiceView | None:
    line = found.service
    if line is None or found.situation.batched.ensemble:
        return None
    return ServiceView(
        fixed=line.fixed,
        per_row=line.per_row,
        scatter=line.scatter,
        allowed=found.situation.allowed,
    )


def _parts(parts: EnsembleSteps) -> PartsView:
    return PartsView(
        kind=parts.kind,
        limit=parts.limit,
        steps=[
            StepView(
                path=one.path,
                name=one.name,
                version=one.version,
                asked=one.asked,
                calls=one.calls,
                others=one.others,
                queue=one.queue,
                compute=one.compute,
                rows_per_execution=one.rows_per_execution,
                share=one.share,
            )
            for one in parts.steps
        ],
    )
