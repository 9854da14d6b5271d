"""Hints over the admin API: how many replicas each pool should have, and why."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from serve.admin.api import schemas
from serve.admin.api.context import InControl
from serve.admin.api.long_polls import unless_left
from serve.control.scaling.board import HintBoard

LONGEST = 25.0  # seconds that somebody waits for the next round

router = APIRouter(tags=["hints"])
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorBody}}


class ReasonView(BaseModel):
    """A reason for a hint: a code for programs, and a sentence."""

    code: str
    text: str


class HintBoundsView(BaseModel):
    """The limits that apply now. `schedule` names the schedule that sets them, if any.

    `budget` is the number of replicas for which there are GPUs. With `to_zero`, an idle pool may
    have no replicas.
    """

    least: int
    most: int
    budget: int | None
    to_zero: bool
    schedule: str


class SignalView(BaseModel):
    """The measurements of one model in one pool; null if unknown.

    `recent` and `lately` are arrivals at the gateway, in calls per second over 5 and 15 seconds.
    `waiting` calls are waiting now. `capacity` is the calls per second that one replica sustains
    under the objective, whose `limit` is in seconds. `missed` is the share of the last minute's
    calls above the limit, and `allowed` the permitted share. `pressure` is the time in Triton's
    queue divided by the time in execution, `occupancy` the rows of an execution divided by
    max_batch_size. `holding` replicas have loaded the model. `age` is the age of the oldest reading
    in seconds. `demand` is the number of replicas that would be busy all the time.
    """

    name: str
    recent: float | None
    lately: float | None
    waiting: float | None
    capacity: float | None
    holding: int
    limit: float | None
    missed: float | None
    allowed: float | None
    pressure: float | None
    occupancy: float | None
    age: float | None
    demand: float | None


class HintView(BaseModel):
    """The recommended number of replicas of a pool. It is advice: the control plane starts and
    stops nothing.

    `demand` is the number of replicas that would be busy all the time, or null if unknown. With a
    low `confidence`, the hint keeps the current number. It was made `at` a time (seconds since the
    epoch) and is valid for `lasts` seconds. `cold_start` and `idle` are in seconds. `utilization`
    is of the GPUs, from 0 to 1. `gpus` are the GPUs of the ready replicas, as `replica/uuid`.
    `faults` are invalid readings.
    """

    pool: str
    desired: int
    ready: int
    starting: int
    demand: float | None
    confidence: str
    lasts: float
    at: float
    reasons: list[ReasonView]
    bounds: HintBoundsView
    cold_start: float | None
    idle: float | None
    utilization: float | None
    gpus: dict[str, dict[str, Any]]
    models: list[SignalView]
    faults: list[str] = []


class HintsView(BaseModel):
    """The hints of all pools. `number` increases with each round; `after=number` waits for the next
    one.
    """

    number: int
    hints: list[HintView]


class DesiredView(BaseModel):
    """Only the number, for KEDA's `metrics-api` and similar clients."""

    desired: int


@router.get("/api/hints", summary="List the hints of all pools")
async def list_hints(
    request: Request,
    control: InControl,
    after: Annotated[
        int | None, Query(description="Wait for a round newer than this number.")
    ] = None,
) -> HintsView:
    """Hints are calculated every five seconds, and when a call waits for a pool without replicas.

    With `after`, the response comes with the next round, or unchanged after 25 seconds. The numbers
    start from zero when the control plane restarts. If `after` is higher than the current number,
    the response is immediate.
    """
    if after is not None and after <= control.board.number:
        await unless_left(request, _newer(control.board, after))
    hints = [HintView(**told.to_json()) for told in control.board.all()]
    return HintsView(number=control.board.number, hints=hints)


@router.get("/api/hints/{pool}", summary="Show the hint of a pool", responses=_UNKNOWN)
async def show_hint(pool: str, control: InControl) -> HintView:
    """Returns the recommended number of replicas, its reasons and its inputs."""
    return HintView(**control.board.of(pool).to_json())


@router.get(
    "/api/hints/{pool}/desired",
    summary="Show the desired replicas of a pool",
    responses={**_UNKNOWN, 503: {"model": schemas.ErrorBody}},
)
async def show_desired(pool: str, control: InControl) -> DesiredView:
    """For KEDA's `metrics-api` trigger: `valueLocation: desired`, `targetValue: "1"`.

    Returns 503 while the hint is on hold or not current.
    """
    return DesiredView(desired=control.board.followed(pool, control.wall()).hint.desired)


async def _newer(board: HintBoard, number: int) -> int:
    """The number of the next round, or of the present one when the time is up."""
    try:
        async with asyncio.timeout(LONGEST):
            return await board.after(number)
    except TimeoutError:
        return board.number
