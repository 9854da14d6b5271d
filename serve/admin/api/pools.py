"""Pools over the admin API: what is allowed of each, and how it is."""

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import ByWhom, InControl
from serve.admin.api.models import Wait, done
from serve.control.scaling.permissions import PoolStatus

router = APIRouter(tags=["hints"], responses={404: {"model": schemas.ErrorBody}})
_EXAMPLE: dict[str, Any] = {
    "least": 1,
    "most": 8,
    "budget": None,
    "to_zero": False,
    "group": "",
    "cost": 1.0,
    "schedules": [
        {"days": "mon-fri", "from": "08:00", "to": "18:00", "zone": "Europe/Berlin", "least": 4}
    ],
}


class ScheduleBody(BaseModel):
    """Limits for some hours on some days, in a time zone; null keeps the usual limit.

    If the end is before the start, the schedule ends on the next day.
    """

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    days: str = "daily"
    begins: str = Field(alias="from")
    ends: str = Field(alias="to")
    zone: str = "UTC"
    least: int | None = None
    most: int | None = None


class PoolBody(BaseModel):
    """The limits of a pool. Missing fields get their default.

    `budget`: number of replicas for which there are GPUs, null for no such limit. `to_zero`: an
    idle pool may have no replicas. `group`: the pools of a group share their models. `cost`: of one
    replica per hour, in a unit that the group shares. The first matching schedule applies.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]}
    )
    least: int = 1
    most: int = 8
    budget: int | None = None
    to_zero: bool = False
    group: str = ""
    cost: float = 1.0
    schedules: list[ScheduleBody] = []


class PoolBoundsView(BaseModel):
    """The limits that apply now. `schedule` is the one that sets them, if any."""

    least: int
    most: int
    budget: int | None
    to_zero: bool
    schedule: str


class PoolView(BaseModel):
    """One pool: its settings, whether they were `set`, and the current limits.

    `etag` is for `If-Match`. `beside` are the pools of its group, including itself, and `models`
    those that its replicas should load.
    """

    pool: str
    set: bool
    etag: str
    settings: PoolBody
    bounds: PoolBoundsView
    replicas: list[str]
    models: list[str]
    beside: list[str]


@router.get("/api/pools", summary="List all pools")
async def list_pools(control: InControl) -> list[PoolView]:
    """Returns all pools that have replicas, models or settings, by name."""
    return [_view(status) for status in control.pools.all()]


@router.get("/api/pools/{pool}", summary="Show one pool")
async def show_pool(pool: str, control: InControl, response: Response) -> PoolView:
    """Returns the settings, and the limits that apply now."""
    status = control.pools.get(pool)
    response.headers["etag"] = status.etag
    return _view(status)


@router.put("/api/pools/{pool}", summary="Set the limits of a pool")
async def put_pool(
    pool: str,
    body: PoolBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.Done:
    """Replaces all previous settings. The pool does not need replicas yet."""
    written = await control.pools.set(pool, body.model_dump(by_alias=True), who)
    return await done(control, written, wait, response)


@router.delete("/api/pools/{pool}", summary="Reset a pool to the default limits")
async def delete_pool(
    pool: str, control: InControl, who: ByWhom, response: Response, wait: Wait = 5.0
) -> schemas.Done:
    """Removes all settings of the pool."""
    return await done(control, await control.pools.clear(pool, who), wait, response)


def _view(status: PoolStatus) -> PoolView:
    bounds: dict[str, Any] = {
        name: getattr(status.bounds, name) for name in ("least", "most", "budget", "to_zero")
    }
    return PoolView(
        pool=status.name,
        set=status.is_set,
        etag=status.etag,
        settings=PoolBody.model_validate(status.settings.to_json()),
        bounds=PoolBoundsView(**bounds, schedule=status.schedule),
        replicas=list(status.replicas),
        models=list(status.models),
        beside=list(status.beside),
    )
