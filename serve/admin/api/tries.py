"""Tries over the admin API: versions called with one input, looked at, and sent again."""

import asyncio
import base64
import binascii
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import ByWhom, InControl
from serve.control.tries.examples import Example
from serve.control.tries.messages import (
    archive,
    grpc_json,
    json_request,
    request_of,
    unpack,
    why_not_json,
)
from serve.control.tries.records import Try, TryLine
from serve.control.tries.requests import FORMS, Offered, TryRequest
from serve.control.tries.snippets import Snippet
from serve.core.errors import Conflict, Invalid
from serve.tensors.codec import HEAD_LENGTH_HEADER

_PATH = "/api/tries/{identity}"
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorBody}}
_NOSNIFF = {"x-content-type-options": "nosniff"}
_PNG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/png": {}}}, **_UNKNOWN}
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}},
    **_UNKNOWN,
}

router = APIRouter(tags=["runs"])
Identity = Annotated[str, Path(max_length=60)]
SideName = Annotated[Literal["a", "b"], Query(description="Side of the run.")]
Selector = Annotated[str, Field(max_length=63, description="Version number, label, or empty.")]


class OfferedBody(BaseModel):
    """One input. `data` is base64. `name` is its name, or the id of an example."""

    model_config = ConfigDict(extra="forbid")
    form: str = Field(description=f"One of {', '.join(FORMS)}.")
    data: str = ""
    name: str = Field(default="", max_length=300)


class TryBody(BaseModel):
    """One call of one or two versions.

    `inputs` are by name; an empty name holds all inputs, or the only one. `b` is null for a single
    version. `batch` repeats one row, or sets the number of random rows. `seed` reproduces random
    rows.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "model": "digits",
                    "a": "3",
                    "b": "4",
                    "via": "grpc",
                    "inputs": {"": {"form": "image", "data": "iVBORw0K…", "name": "seven.png"}},
                },
                {"model": "digits", "a": "stable", "inputs": {"x": {"form": "random"}}, "batch": 8},
            ]
        },
    )
    model: str = Field(max_length=300)
    a: Selector = ""
    b: Selector | None = None
    via: Literal["http", "grpc"] = "http"
    inputs: dict[str, OfferedBody] = Field(min_length=1, max_length=100)
    batch: int | None = Field(default=None, ge=1, le=1024)
    top_k: int = Field(default=5, ge=1, le=100)
    seed: int | None = Field(default=None, ge=0, lt=1 << 53)


class DatasetBody(BaseModel):
    """The dataset that receives the input of a run as a row, and its label."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"dataset": "digits-held-out", "label": "7"}]},
    )
    dataset: str = Field(max_length=200)
    label: str = Field(max_length=1000)


@router.post(
    "/api/tries", status_code=201, summary="Start a run of one or two versions", responses=_UNKNOWN
)
async def make_try(body: TryBody, control: InControl, who: ByWhom) -> Try:
    """Sends the same input to each version, one after the other, through the gateway, and stores
    the results.

    An error of a version is the `error` of its side.
    """
    offered = {name: _offered(one) for name, one in body.inputs.items()}
    ask = TryRequest(
        body.model, body.a, offered, body.b, body.via, body.batch, body.top_k, body.seed
    )
    return await control.tries.tries.make(ask, who.author)


@router.get("/api/tries", summary="List runs")
async def list_tries(
    control: InControl,
    model: Annotated[str, Query(max_length=300)] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[TryLine]:
    """Returns the newest first."""
    return await control.tries.shelf.all(model=model, limit=limit)


@router.get(_PATH, summary="Show a run", responses=_UNKNOWN)
async def show_try(identity: Identity, control: InControl) -> Try:
    """Returns the whole run."""
    return await control.tries.shelf.get(identity)


@router.delete(_PATH, status_code=204, summary="Delete a run", responses=_UNKNOWN)
async def remove_try(identity: Identity, control: InControl, who: ByWhom) -> Response:
    """Deletes it for all users."""
    await control.tries.shelf.remove(identity)
    return Response(status_code=204)


@router.get(
    _PATH + "/inputs/{name:path}.png",
    summary="Show an input as a picture",
    response_class=Response,
    responses=_PNG,
)
async def show_input(
    identity: Identity, name: str, control: InControl, side: SideName = "a"
) -> Response:
    """Returns the picture as the model receives it, converted back to 8 bits."""
    data = await control.tries.shelf.picture(identity, name, side)
    return Response(data, media_type="image/png", headers=_NOSNIFF)


@router.get(
    _PATH + "/outputs/{name:path}.png",
    summary="Show an output as a picture",
    response_class=Response,
    responses=_PNG,
)
async def show_output(
    identity: Identity, name: str, control: InControl, side: SideName = "a"
) -> Response:
    """Returns the first row of an image, of a mask or of boxes."""
    data = await control.tries.shelf.drawing(identity, name, side)
    return Response(data, media_type="image/png", headers=_NOSNIFF)


@router.get(_PATH + "/request.json", summary="Get the request as JSON", responses=_UNKNOWN)
async def fetch_request(
    identity: Identity,
    control: InControl,
    side: SideName = "a",
    via: Literal["http", "grpc"] = "http",
) -> Response:
    """Returns the KServe v2 request, ready to send. For gRPC, it is protobuf's JSON.

    Tensors that Triton does not accept as JSON over HTTP are in `request.bin`.
    """
    shelf = control.tries.shelf
    one = await shelf.get(identity)
    tensors, datatypes = await asyncio.to_thread(unpack, await shelf.inputs(identity, side))
    asked = next(each for each in one.sides if each.side == side)
    if via == "grpc":
        page = await asyncio.to_thread(grpc_json, one.model, asked.asked, tensors, datatypes)
        return JSONResponse(page)
    answered = {line.name: line.datatype for line in asked.outputs}
    why = await asyncio.to_thread(why_not_json, tensors, datatypes, answered)
    if why:
        raise Conflict(
            "this request cannot be written as JSON", why=why, try_this=f"{_PATH}/request.bin"
        )
    return JSONResponse(await asyncio.to_thread(json_request, tensors, datatypes))


@router.get(
    _PATH + "/request.bin",
    summary="Get the request with binary tensors",
    response_class=Response,
    responses=_BYTES,
)
async def fetch_binary(identity: Identity, control: InControl, side: SideName = "a") -> Response:
    """Returns the body of the KServe v2 request. A header contains the length of its JSON part."""
    request = request_of(await control.tries.shelf.inputs(identity, side))
    headers = {HEAD_LENGTH_HEADER: str(request.head_length), **_NOSNIFF}
    return Response(request.body, media_type="application/octet-stream", headers=headers)


@router.get(
    _PATH + "/inputs.npz",
    summary="Get the input tensors",
    response_class=Response,
    responses=_BYTES,
)
async def fetch_inputs(identity: Identity, control: InControl, side: SideName = "a") -> Response:
    """Returns the tensors of the request, by name."""
    tensors, _ = await asyncio.to_thread(unpack, await control.tries.shelf.inputs(identity, side))
    return _archive(await asyncio.to_thread(archive, tensors), f"{identity}-inputs.npz")


@router.get(
    _PATH + "/outputs.npz",
    summary="Get the output tensors",
    response_class=Response,
    responses=_BYTES,
)
async def fetch_outputs(identity: Identity, control: InControl, side: SideName = "a") -> Response:
    """Returns the tensors of a side's response, by name."""
    tensors, _ = await control.tries.shelf.outputs(identity, side)
    return _archive(await asyncio.to_thread(archive, tensors), f"{identity}-outputs-{side}.npz")


@router.get(_PATH + "/snippets", summary="Show snippets that repeat a run", responses=_UNKNOWN)
async def show_snippets(
    identity: Identity, request: Request, control: InControl, side: SideName = "a"
) -> list[Snippet]:
    """Returns commands and a program that make the same call.

    They use the address of this request.
    """
    guarded = control.needs_key(control.models.decisions.guarded)
    return await control.tries.snippets(
        identity, side, admin=str(request.base_url), admin_shows_key=guarded
    )


@router.post(
    _PATH + "/dataset", status_code=204, summary="Add a run to a dataset", responses=_UNKNOWN
)
async def add_row(
    identity: Identity, body: DatasetBody, control: InControl, who: ByWhom
) -> Response:
    """Adds the input of the run as a row."""
    data, name = await control.tries.row(identity)
    await control.rows.add(body.dataset, data, name, body.label, who.author)
    return Response(status_code=204)


@router.get("/api/models/{model}/examples", summary="List example inputs", responses=_UNKNOWN)
async def list_examples(
    model: str, control: InControl, version: Annotated[int | None, Query(ge=1)] = None
) -> list[Example]:
    """Returns the golden cases of a version (default: the one with the most traffic)."""
    return await control.tries.examples.all(model, version)


@router.get(
    "/api/models/{model}/examples/{example}.png",
    summary="Show an example input as a picture",
    response_class=Response,
    responses=_PNG,
)
async def show_example(
    model: str, example: str, control: InControl, name: Annotated[str, Query()] = ""
) -> Response:
    """Returns the first input that is a picture, or the one with this name."""
    data = await control.tries.examples.picture(model, example, name)
    return Response(data, media_type="image/png", headers=_NOSNIFF)


def _offered(body: OfferedBody) -> Offered:
    try:
        data = base64.b64decode(body.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("'data' of an input is not base64", why=str(error)) from error
    return Offered(body.form, data, body.name)


def _archive(data: bytes, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"', **_NOSNIFF}
    return Response(data, media_type="application/octet-stream", headers=headers)
