"""Hints over the admin API: how many replicas each pool should have, and why."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from serve.control.scaling.board import Board
from serve.listeners.admin import schemas
from serve.listeners.admin.context import InControl
from serve.listeners.admin.polling import unless_left

LONGEST = 25.0  # seconds that somebody waits for the next round

router = APIRouter(tags=["hints"])
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorBody}}


class ReasonView(BaseModel):
    """Why a hint is what it is: a code for programs, a sentence for people."""

    code: str
    text: str


class BoundsView(BaseModel):
    """What people allow now; `schedule` names the entry whose bounds hold, if any.

    `budget` is replicas that there are GPUs for. With `to_zero` an idle pool may have none.
    """

    least: int
    most: int
    budget: int | None
    to_zero: bool
    schedule: str


class SignalView(BaseModel):
    """What is seen of one model in one pool; null where nobody tells.

    `recent` and `lately` are arrivals at the gateway, in calls per second over 5 and 15 seconds.
    `waiting` calls wait now. `capacity` is calls per second that one replica bears under the
    objective, whose `limit` is in seconds; `missed` of the last minute's calls were beyond it, and
    `allowed` is what may be. `pressure` is time in Triton's queue ÷ time in execution, `occupancy`
    rows of an execution ÷ max_batch_size. `holding` replicas can be called. `age`, in seconds, is
    of the oldest reading. `demand` is in replicas that are busy all the time.
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
    """How many replicas a pool should have. Advice: nothing is started or stopped by it here.

    `demand` is in replicas that are busy all the time; null where that is not known. With low
    `confidence` the number is only held. It was made `at` a time, in seconds of the epoch, and may
    be followed for `lasts` seconds. `cold_start` and `idle` are in seconds. `utilization` is of the
    GPUs, from 0 to 1; `gpus` are those of the replicas that are ready, by `replica/uuid`. `faults`
    are readings that cannot be right.
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
    bounds: BoundsView
    cold_start: float | None
    idle: float | None
    utilization: float | None
    gpus: dict[str, dict[str, Any]]
    models: list[SignalView]
    faults: list[str] = []


class HintsView(BaseModel):
    """The hints of all pools. `number` rises with each round; `after=number` waits for the next."""

    number: int
    hints: list[HintView]


class DesiredView(BaseModel):
    """The number alone, for KEDA's `metrics-api` and others that read a single one."""

    desired: int


@router.get("/api/hints", summary="List the hints of all pools")
async def list_hints(
    request: Request,
    control: InControl,
    after: Annotated[int | None, Query(description="wait for a newer round than this")] = None,
) -> HintsView:
    """Made every five seconds, and when somebody waits for a pool without replicas.

    With `after` the answer comes with the next round, or after 25 seconds as it is. A control plane
    that has started anew begins to count anew: with a number that it has not reached it answers at
    once.
    """
    if after is not None and after <= control.board.number:
        await unless_left(request, _newer(control.board, after))
    hints = [HintView(**told.to_json()) for told in control.board.all()]
    return HintsView(number=control.board.number, hints=hints)


@router.get("/api/hints/{pool}", summary="Show the hint of a pool", responses=_UNKNOWN)
async def show_hint(pool: str, control: InControl) -> HintView:
    """The recommended number of replicas, its reasons, and all that it was made of."""
    return HintView(**control.board.of(pool).to_json())


@router.get(
    "/api/hints/{pool}/desired",
    summary="Show a pool's number",
    responses={**_UNKNOWN, 503: {"model": schemas.ErrorBody}},
)
async def show_desired(pool: str, control: InControl) -> DesiredView:
    """For KEDA's `metrics-api` trigger: `valueLocation: desired`, `targetValue: "1"`.

    503 while the pool is to stay as it is, or nothing new is known of it.
    """
    return DesiredView(desired=control.board.followed(pool, control.wall()).hint.desired)


async def _newer(board: Board, number: int) -> int:
    """The number of the next round, or of the present one when the time is up."""
    try:
        async with asyncio.timeout(LONGEST):
            return await board.after(number)
    except TimeoutError:
        return board.number
