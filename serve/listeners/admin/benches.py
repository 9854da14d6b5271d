"""Benches over the admin API: a version in a Triton of its own, or on a spared replica."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from serve.control.batching.benches import BenchView
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, InControl

_PATH = "/api/benches/{identity}"
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorBody}}
_BUSY: dict[int | str, dict[str, Any]] = {409: {"model": schemas.ErrorBody}, **_UNKNOWN}

router = APIRouter(tags=["benches"])
Identity = Annotated[str, Path(max_length=60)]
_Fields = Annotated[
    dict[str, Any],
    Field(description="fields of config.pbtxt, as JSON: they replace what the version came with"),
]
_TUNED: dict[str, Any] = {
    "max_batch_size": 16,
    "dynamic_batching": {"max_queue_delay_microseconds": 500},
}


class BenchBody(BaseModel):
    """With which fields, and where: a replica by its name, or a throw-away Triton."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"fields": _TUNED, "replica": ""}]}
    )
    fields: _Fields = Field(default_factory=dict)
    replica: str = Field(default="", max_length=300)


class ChangeBody(BaseModel):
    """The fields that are to be measured next; nothing of those before stays."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"fields": _TUNED}]})
    fields: _Fields = Field(default_factory=dict)


@router.post(
    "/api/models/{model}/versions/{number}/benches",
    status_code=201,
    summary="Open a bench",
    responses=_BUSY,
)
async def open_bench(
    model: str,
    number: Annotated[int, Path(ge=1)],
    body: BenchBody,
    control: InControl,
    who: ByWhom,
) -> BenchView:
    """Load the version where nobody calls it, to measure it; there is one bench at a time.

    A bench that nobody asks for in 60 s is closed. A replica gets no calls until it is over, and
    is as before then; one that the others cannot do without is refused.
    """
    return await control.benches.open(model, number, body.fields, body.replica)


@router.get(_PATH, summary="Keep a bench", responses=_UNKNOWN)
async def keep_bench(identity: Identity, control: InControl) -> BenchView:
    """Show it, and keep it for another 60 s."""
    return control.benches.keep(identity)


@router.put(_PATH, summary="Change a bench", responses=_UNKNOWN)
async def change_bench(
    identity: Identity, body: ChangeBody, control: InControl, who: ByWhom
) -> BenchView:
    """Load the version with other fields; Triton counts from zero then.

    If that fails the fields before are loaded again.
    """
    return await control.benches.change(identity, body.fields)


@router.delete(_PATH, status_code=204, summary="Close a bench", responses=_UNKNOWN)
async def close_bench(identity: Identity, control: InControl, who: ByWhom) -> Response:
    """Everything is as before when this returns."""
    await control.benches.close(identity)
    return Response(status_code=204)
