"""Published versions over the admin API: shown, fetched, tagged, retired, restored, collected."""

import asyncio
import json
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from serve.control.versions import Version
from serve.core.errors import Invalid, NotFound
from serve.core.versions import CONVERSION, File, State
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, Control, InControl
from serve.listeners.admin.pages import PAGE_HEADERS

router = APIRouter(tags=["versions"], responses={404: {"model": schemas.ErrorBody}})
_PATH = "/api/models/{model}/versions/{number}"
_LARGEST_REPORT = 16 << 20  # bytes
_IN_USE: dict[int | str, dict[str, Any]] = {
    409: {"model": schemas.ErrorBody, "description": "something refers to the version"}
}


class FileView(BaseModel):
    """One file of a version."""

    path: str
    size: int
    sha256: str


class ProvenanceView(BaseModel):
    """Where a version comes from; `at` is seconds of the epoch."""

    author: str
    at: float
    source: str
    git_commit: str
    tools: dict[str, str]


class VersionView(BaseModel):
    """One version: its record, its files once published, and how the replicas hold it.

    `state` is `loading`, `ready` or `serving` where the record says `published`. `labels` and
    `live` still wait for it to be ready; `named_by` are the labels that name it. `keep`: it stays
    loaded although nothing refers to it. `flavours` is canonical flavours.json, `flavour_of` the
    flavour in which each replica holds it, `problems` why that is not a better one.
    """

    model: str
    version: int
    state: str
    recorded: State
    reason: str
    replicas: list[str]
    named_by: list[str]
    labels: list[str]
    live: bool
    keep: bool
    content: str
    physical: str
    group: str
    config: str
    flavours: str
    flavour_of: dict[str, str]
    problems: list[str]
    size: int
    memory: int | None
    has_contract: bool
    findings: list[str]
    tags: dict[str, str]
    provenance: ProvenanceView
    times: dict[str, float]
    signature: dict[str, Any]
    output_labels: dict[str, list[str]]
    preprocessing: dict[str, Any]
    card: dict[str, Any]
    files: list[FileView]


class VersionPatch(BaseModel):
    """What to change; what is missing stays. A tag with an empty text goes; `labels` are all that
    shall wait for the version; with `keep` it stays loaded although nothing refers to it."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"tags": {"ticket": "ML-7"}}]}
    )
    tags: dict[str, str] | None = None
    labels: list[str] | None = None
    keep: bool | None = None


class GarbageBody(BaseModel):
    """How many versions of each model stay (default: as configured), and how old blobs must be."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"keep": 10, "dry_run": True}]}
    )
    keep: int | None = Field(default=None, ge=0)
    dry_run: bool = False
    grace: float = Field(default=3600.0, ge=0, description="seconds")


class GarbageItem(BaseModel):
    """One thing that goes: a `version`, `manifest` or `blob`."""

    kind: str
    name: str
    size: int
    why: str


class GarbageView(BaseModel):
    """What went, or would have gone; `bytes` are those of blobs."""

    dry_run: bool
    bytes: int
    items: list[GarbageItem]


@router.get(_PATH, summary="Show one version")
async def show_version(
    model: str, number: int, control: InControl, response: Response
) -> VersionView:
    """A version that was pushed, from its upload on; its ETag is what `If-Match` refers to."""
    return await _view(control, control.publications.get(model, number), response)


@router.get(_PATH + "/files/{path:path}", summary="Fetch a file of a version")
async def fetch_file(model: str, number: int, path: str, control: InControl) -> Response:
    """The bytes as they were published; the ETag is their SHA-256."""
    control.publications.get(model, number)
    manifest = await control.storage.manifest(model, number)
    file = next((file for file in manifest.files if file.path == path), None)
    if file is None or not await control.storage.has(file.sha256, file.size):
        raise NotFound(f"version {number} of model '{model}' has no file '{path[:300]}'")
    headers = {
        "content-length": str(file.size),
        "etag": f'"{file.sha256}"',
        "x-content-type-options": "nosniff",
    }
    pieces = control.storage.stream(file.sha256)
    return StreamingResponse(pieces, headers=headers, media_type="application/octet-stream")


@router.get(
    _PATH + "/conversion/report.html",
    summary="Read how a version was converted",
    response_class=HTMLResponse,
)
async def read_conversion(model: str, number: int, control: InControl) -> HTMLResponse:
    """The report that came with it, for people, as one page without scripts."""
    control.publications.get(model, number)
    manifest = await control.storage.manifest(model, number)
    file = next((file for file in manifest.files if file.path == CONVERSION), None)
    if file is None or not await control.storage.has(file.sha256, file.size):
        raise NotFound(f"version {number} of model '{model}' has no report of a conversion")
    if file.size > _LARGEST_REPORT:
        raise Invalid("the report of the conversion is too large to be read here")
    text = b"".join([piece async for piece in control.storage.stream(file.sha256)])
    return HTMLResponse(await asyncio.to_thread(_drawn, text), headers=PAGE_HEADERS)


@router.patch(_PATH, summary="Set a version's tags, what waits for it, or that it stays")
async def patch_version(
    model: str,
    number: int,
    body: VersionPatch,
    control: InControl,
    who: ByWhom,
    response: Response,
) -> VersionView:
    """What is published of a version never changes; this is only about it."""
    amended = await control.publications.amend(
        model, number, tags=body.tags, labels=body.labels, keep=body.keep, by=who
    )
    return await _view(control, amended, response)


@router.delete(_PATH, summary="Retire a version", responses=_IN_USE)
async def retire_version(
    model: str,
    number: int,
    control: InControl,
    who: ByWhom,
    response: Response,
    purge: Annotated[bool, Query(description="remove its files, too")] = False,
) -> VersionView:
    """Replicas unload it; its files stay until garbage is collected. `purge`: they go now.

    A version that has failed was never loaded, and cannot be restored: it goes for good.
    """
    version = control.publications.get(model, number)
    purge = purge or version.state is State.FAILED
    if not purge or version.state is State.PUBLISHED:
        version = await control.retention.retire(model, number, who)
        who = replace(who, if_match="")  # it was for the record as it was
    if purge:
        version = await control.retention.remove(model, number, who)
    return await _view(control, version, response)


@router.post(_PATH + "/restore", summary="Publish a retired version again", responses=_IN_USE)
async def restore_version(
    model: str, number: int, control: InControl, who: ByWhom, response: Response
) -> VersionView:
    """It is loaded again; calls stay where they are."""
    return await _view(control, await control.retention.restore(model, number, who), response)


@router.post("/api/gc", summary="Collect garbage")
async def collect_garbage(body: GarbageBody, control: InControl, who: ByWhom) -> GarbageView:
    """Remove old retired and failed versions, and what nothing needs; `dry_run` only tells."""
    found = await control.retention.collect(
        body.keep, grace=body.grace, dry_run=body.dry_run, by=who
    )
    items = [GarbageItem(kind=g.kind, name=g.name, size=g.size, why=g.why) for g in found]
    freed = sum(item.size for item in items if item.kind == "blob")
    return GarbageView(dry_run=body.dry_run, bytes=freed, items=items)


def _drawn(text: bytes) -> str:
    from serve.conversion.rendering import render_html
    from serve.conversion.report import Report

    try:
        return render_html(Report.from_json(json.loads(text)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid("the report of the conversion cannot be read", why=repr(error)) from error


async def _view(control: Control, version: Version, response: Response) -> VersionView:
    response.headers["etag"] = version.etag
    files: tuple[File, ...] = ()
    if version.state in (State.PUBLISHED, State.RETIRED):
        files = (await control.storage.manifest(version.model, version.number)).files
    state, reason = version.state.value, version.reason
    replicas: tuple[str, ...] = ()
    flavours: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    if version.is_published:
        seen = control.models.version(version.model, version.number)
        state = State.SERVING.value if seen.serving else seen.state
        reason, replicas = version.reason or seen.reason, seen.replicas
        flavours, problems = dict(seen.flavours), seen.problems
    labels = control.models.decisions.labels(version.model)
    body = version.to_body()
    del body["upload"]
    return VersionView(
        **body
        | {
            "model": version.model,
            "version": version.number,
            "state": state,
            "recorded": version.state,
            "reason": reason,
            "replicas": list(replicas),
            "flavour_of": flavours,
            "problems": list(problems),
            "named_by": sorted(label for label, one in labels.items() if one == version.number),
            "files": [file.to_json() for file in files],
        }
    )
