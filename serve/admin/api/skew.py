"""The skew check over the admin API: a training script's samples against a version's record."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from serve.admin.api import schemas
from serve.admin.api.context import InControl
from serve.control.recorded import recorded_of
from serve.core.errors import Invalid
from serve.tensors.preprocessing import parse
from serve.tensors.skew import SkewReport, skew
from serve.tensors.skew_samples import read_samples

router = APIRouter(tags=["models"], responses={404: {"model": schemas.ErrorBody}})
_MOST_PIXELS = 100_000_000  # that a body of 8 MiB may unpack to: seconds
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "An NPZ file with `raw/NAME` and `tensor/NAME` for each input NAME.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class CauseView(BaseModel):
    """A likely cause: something that training did differently from the recorded preprocessing.
    `change` contains the fields to set in preprocessing.json (null removes a field). With `exact`,
    the samples then match the training's tensors bit for bit.
    """

    what: str
    change: dict[str, Any]
    exact: bool


class InputSkewView(BaseModel):
    """One input: `equal` of `rows` samples match the training's tensor bit for bit.

    `largest_difference` is null if shapes differ, values are texts, or a value is not finite.
    """

    name: str
    skewed: bool
    rows: int
    equal: int
    first_differing_row: int | None
    largest_difference: float | None
    notes: list[str]
    causes: list[CauseView]


class SkewView(BaseModel):
    """Whether training and serving differ, and where."""

    skewed: bool
    inputs: list[InputSkewView]


@router.post(
    "/api/models/{model}/skew",
    summary="Check training samples against the preprocessing",
    openapi_extra=_BODY,
)
async def check_skew(
    model: str,
    request: Request,
    control: InControl,
    version: Annotated[
        int | None, Query(ge=1, description="The version (default: the newest).")
    ] = None,
) -> SkewView:
    """Applies the recorded preprocessing to every sample. Nothing is stored."""
    document = recorded_of(control.models, model, version).preprocessing
    if not document:
        what = f"no preprocessing is recorded for model '{model}'"
        raise Invalid(what, try_this="push the model with a preprocessing.json")
    data = await request.body()
    report = await asyncio.to_thread(_checked, document, data)
    return SkewView.model_validate(report.to_json())


def _checked(document: Mapping[str, Any], data: bytes) -> SkewReport:
    return skew(parse(document), read_samples(data), most_pixels=_MOST_PIXELS)
