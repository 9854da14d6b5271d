"""Benches over the admin API: a version in a Triton of its own, or on a spared replica."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import ByWhom, InControl
from serve.control.batching.benches import BenchView

_PATH = "/api/benches/{identity}"
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorBody}}
_BUSY: dict[int | str, dict[str, Any]] = {409: {"model": schemas.ErrorBody}, **_UNKNOWN}

router = APIRouter(tags=["benchmark sessions"])
Identity = Annotated[str, Path(max_length=60)]
_Fields = Annotated[
    dict[str, Any],
    Field(
        description="Fields of config.pbtxt as JSON. They replace the fields of the published "
        "configuration."
    ),
]
_TUNED: dict[str, Any] = {
    "max_batch_size": 16,
    "dynamic_batching": {"max_queue_delay_microseconds": 500},
}


class BenchBody(BaseModel):
    """The fields to measure, and the place: the name of a replica, or a temporary Triton."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"fields": _TUNED, "replica": ""}]}
    )
    fields: _Fields = Field(default_factory=dict)
    replica: str = Field(default="", max_length=300)


class ChangeBody(BaseModel):
    """The fields to measure next. They replace all previous ones."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"fields": _TUNED}]})
    fields: _Fields = Field(default_factory=dict)


@router.post(
    "/api/models/{model}/versions/{number}/benches",
    status_code=201,
    summary="Start a benchmark session",
    responses=_BUSY,
)
async def open_bench(
    model: str,
    number: Annotated[int, Path(ge=1)],
    body: BenchBody,
    control: InControl,
    who: ByWhom,
) -> BenchView:
    """Loads the version for measurements, on a temporary Triton or on a replica that gets no other
    calls. There can be only one session at a time.

    A session that is not kept open is closed after 60 s. A replica returns to its previous state at
    the end. The request is refused if other calls need the replica.
    """
    return await control.benches.open(model, number, body.fields, body.replica)


@router.get(_PATH, summary="Keep a benchmark session open", responses=_UNKNOWN)
async def keep_bench(identity: Identity, control: InControl) -> BenchView:
    """Returns the session, and keeps it open for another 60 s."""
    return control.benches.keep(identity)


@router.put(_PATH, summary="Change the fields of a benchmark session", responses=_UNKNOWN)
async def change_bench(
    identity: Identity, body: ChangeBody, control: InControl, who: ByWhom
) -> BenchView:
    """Loads the version with other fields. Triton's counters start from zero.

    If this fails, the previous fields are loaded again.
    """
    return await control.benches.change(identity, body.fields)


@router.delete(_PATH, status_code=204, summary="Close a benchmark session", responses=_UNKNOWN)
async def close_bench(identity: Identity, control: InControl, who: ByWhom) -> Response:
    """Returns when everything is as it was before the session."""
    await control.benches.close(identity)
    return Response(status_code=204)
