"""Labelled datasets over the admin API: uploaded, looked at, removed."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.core.errors import Invalid
from serve.workbench.evaluation.api.multipart import receive_file, receive_parts
from serve.workbench.evaluation.dataset import Dataset, check_dataset_name
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.incoming_rows import (
    DatasetFormat,
    Roles,
    read_file,
    read_parts,
    slices_of,
)
from serve.workbench.evaluation.rows import Fresh

MOST_ROWS = 200  # of a page
_PATH = "/api/datasets/{name}"
_PICTURE = {
    "cache-control": "private, max-age=3600",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}

router = APIRouter(tags=["datasets"], responses={404: {"model": schemas.ErrorBody}})
Name = Annotated[str, Path(max_length=200)]
Revision = Annotated[int | None, Query(ge=1, description="The revision (default: the newest).")]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["name", "files"],
                    "properties": {
                        "name": {"type": "string"},
                        "label": {"type": "string", "description": "Column of the label."},
                        "slices": {
                            "type": "string",
                            "description": "Columns, separated by commas.",
                        },
                        "files": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "One file, or pictures with paths as their file names.",
                        },
                    },
                }
            }
        },
    }
}


class DatasetView(BaseModel):
    """One revision of a dataset.

    `classes` counts each label, and is empty if there are too many. `inputs` are the input forms of
    the rows by the model's input, with an empty name for its only one. `vector` names the numeric
    columns that make up one input. `digest` identifies the rows, and `size` is in bytes.
    """

    name: str
    revision: int
    digest: str
    rows: int
    classes: dict[str, int]
    inputs: dict[str, str]
    vector: list[str]
    slices: list[str]
    size: int
    pictures: bool
    source: str
    author: str
    at: datetime


class DatasetKept(DatasetView):
    """The result of an upload. `notes` list what was left out."""

    notes: list[str]


class RowView(BaseModel):
    """One row. `image` is the URL of its picture, or empty."""

    row: int
    label: str
    name: str
    slices: dict[str, str]
    inputs: dict[str, str]
    image: str


class RowsView(BaseModel):
    """Some of `total` rows."""

    total: int
    rows: list[RowView]


@router.post(
    "/api/datasets",
    status_code=201,
    summary="Upload a dataset as a folder or a single file",
    openapi_extra=_FORM,
)
async def post_dataset(request: Request, control: InControl, who: ByWhom) -> DatasetKept:
    """Accepts a folder of pictures, labelled by their folders or by a `labels.csv`, or one CSV,
    NPZ, Parquet or ZIP file. If the name exists, this adds a new revision.
    """
    async with control.service(Datasets).scratch() as folder:
        content_type = request.headers.get("content-type", "")
        try:
            arrived = await receive_parts(content_type, request.stream(), folder / "sent")
        except ClientDisconnect as error:
            raise Invalid("the upload was interrupted") from error
        roles = Roles(arrived.fields.get("label", ""), slices_of(arrived.fields.get("slices", "")))
        notes: list[str] = []
        rows = read_parts(arrived.path, arrived.parts, roles, notes, folder)
        source = arrived.parts[0].path.split("/")[0] if arrived.parts else ""
        return await _kept(control, arrived.fields.get("name", ""), rows, source, who.author, notes)


@router.put(_PATH, status_code=201, summary="Upload a dataset as one file", openapi_extra=_BODY)
async def put_dataset(
    name: Name,
    request: Request,
    control: InControl,
    who: ByWhom,
    format: Annotated[
        DatasetFormat,
        Query(description="Format of the file; `zip` is a folder of pictures."),
    ],
    label: Annotated[str, Query(max_length=200, description="Column or array of the label.")] = "",
    slices: Annotated[
        str, Query(max_length=2000, description="Columns, separated by commas.")
    ] = "",
) -> DatasetKept:
    """The body is the file. If the name exists, this adds a new revision."""
    check_dataset_name(name)
    async with control.service(Datasets).scratch() as folder:
        path: File = folder / "sent"
        try:
            await receive_file(request.stream(), path)
        except ClientDisconnect as error:
            raise Invalid("the upload was interrupted") from error
        notes: list[str] = []
        rows = read_file(path, format, Roles(label, slices_of(slices)), notes)
        return await _kept(control, name, rows, format.value, who.author, notes)


@router.get("/api/datasets", summary="List datasets")
async def list_datasets(control: InControl) -> list[DatasetView]:
    """Returns the newest revision of each, by name."""
    return [DatasetView(**_fields(one)) for one in await control.service(Datasets).all()]


@router.get(_PATH, summary="Show a dataset")
async def show_dataset(name: Name, control: InControl, revision: Revision = None) -> DatasetView:
    """Returns one revision."""
    return DatasetView(**_fields(await control.service(Datasets).get(name, revision)))


@router.get(_PATH + "/rows", summary="List the rows of a dataset")
async def list_rows(
    name: Name,
    control: InControl,
    revision: Revision = None,
    start: Annotated[int, Query(alias="from", ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
) -> RowsView:
    """Returns rows in their order."""
    view = await control.service(Datasets).view(name, revision)
    numbers = range(min(start, len(view)), min(start + count, len(view)))
    return RowsView(
        total=len(view),
        rows=[
            RowView(
                row=number,
                label=row.label,
                name=row.name,
                slices=dict(row.slices),
                inputs={key: cell.form.value for key, cell in row.cells.items()},
                image=image_of(view.dataset, number),
            )
            for number in numbers
            for row in (view.row(number),)
        ],
    )


@router.get(
    _PATH + "/rows/{row}/image.png",
    summary="Get the picture of a row",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}},
)
async def fetch_picture(
    name: Name, row: Annotated[int, Path(ge=0)], control: InControl, revision: Revision = None
) -> Response:
    """Returns a new PNG of at most 512 × 512 pixels."""
    data = await control.service(Datasets).picture(name, row, revision)
    return Response(data, media_type="image/png", headers=_PICTURE)


@router.delete(_PATH, status_code=204, summary="Delete a dataset")
async def remove_dataset(name: Name, control: InControl, who: ByWhom) -> Response:
    """Deletes all revisions. Evaluations that used them stay, but lose their pictures."""
    await control.service(Datasets).remove(name)
    return Response(status_code=204)


def image_of(dataset: Dataset, row: int) -> str:
    """Where the picture of a row is; empty where the dataset has no pictures."""
    if not dataset.has_pictures:
        return ""
    return f"/api/datasets/{dataset.name}/rows/{row}/image.png?revision={dataset.revision}"


async def _kept(
    control: AdminContext,
    name: str,
    rows: Iterable[Fresh],
    source: str,
    author: str,
    notes: list[str],
) -> DatasetKept:
    kept = await control.service(Datasets).add(name, rows, source=source, author=author)
    return DatasetKept(**_fields(kept), notes=notes)


def _fields(one: Dataset) -> dict[str, Any]:
    return {
        "name": one.name,
        "revision": one.revision,
        "digest": one.digest,
        "rows": one.rows,
        "classes": dict(one.classes),
        "inputs": dict(one.inputs),
        "vector": list(one.vector),
        "slices": list(one.slices),
        "size": one.size,
        "pictures": one.has_pictures,
        "source": one.source,
        "author": one.author,
        "at": datetime.fromtimestamp(one.at, UTC),
    }
