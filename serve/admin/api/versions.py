"""Published versions over the admin API: shown, fetched, tagged, retired, restored, collected."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.control.versions import PublishedVersion
from serve.core.errors import NotFound
from serve.core.versions import VersionFile, VersionState

router = APIRouter(tags=["versions"], responses={404: {"model": schemas.ErrorBody}})
_PATH = "/api/models/{model}/versions/{number}"
_IN_USE: dict[int | str, dict[str, Any]] = {
    409: {"model": schemas.ErrorBody, "description": "The version is in use."}
}


class FileView(BaseModel):
    """One file of a version."""

    path: str
    size: int
    sha256: str


class ProvenanceView(BaseModel):
    """The origin of a version. `at` is in seconds since the epoch."""

    author: str
    at: float
    source: str
    git_commit: str
    tools: dict[str, str]


class VersionView(BaseModel):
    """One version: its record, its files once published, and its state on the replicas.

    `state` is `loading`, `ready` or `serving` if the record says `published`. `labels` and `live`
    wait for the version to be ready; `named_by` are the labels that point to it. `keep`: it stays
    loaded even if nothing refers to it. `flavours` is canonical flavours.json, `flavour_of` the
    flavour on each replica, and `problems` the reasons why it is not a better one.
    """

    model: str
    version: int
    state: str
    recorded: VersionState
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
    output_kinds: dict[str, Any]
    preprocessing: dict[str, Any]
    card: dict[str, Any]
    files: list[FileView]


class VersionPatch(BaseModel):
    """Changes to a version. Missing fields stay unchanged. A tag with an empty text is removed.
    `labels` are all labels that wait for the version. With `keep`, it stays loaded even if nothing
    refers to it.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"tags": {"ticket": "ML-7"}}]}
    )
    tags: dict[str, str] | None = None
    labels: list[str] | None = None
    keep: bool | None = None


class GarbageBody(BaseModel):
    """How many versions of each model to keep (default: as configured), and the minimum age of
    blobs.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"keep": 10, "dry_run": True}]}
    )
    keep: int | None = Field(default=None, ge=0)
    dry_run: bool = False
    grace: float = Field(default=3600.0, ge=0, description="Minimum age in seconds.")


class GarbageItem(BaseModel):
    """One object to delete: a `version`, `manifest` or `blob`."""

    kind: str
    name: str
    size: int
    why: str


class GarbageView(BaseModel):
    """The deleted objects, or those that would be deleted. `bytes` counts blobs."""

    dry_run: bool
    bytes: int
    items: list[GarbageItem]


@router.get(_PATH, summary="Show one version")
async def show_version(
    model: str, number: int, control: InControl, response: Response
) -> VersionView:
    """Works for pushed versions, starting with their upload. `If-Match` refers to its ETag."""
    return await _view(control, control.publications.get(model, number), response)


@router.get(_PATH + "/files/{path:path}", summary="Get a file of a version")
async def fetch_file(model: str, number: int, path: str, control: InControl) -> Response:
    """Returns the published bytes. The ETag is their SHA-256."""
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


@router.patch(_PATH, summary="Change a version's tags, pending labels or keep flag")
async def patch_version(
    model: str,
    number: int,
    body: VersionPatch,
    control: InControl,
    who: ByWhom,
    response: Response,
) -> VersionView:
    """The published files of a version never change; this changes only its record."""
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
    purge: Annotated[bool, Query(description="Also delete its files.")] = False,
) -> VersionView:
    """Replicas unload the version. Its files stay until garbage collection, or are deleted
    immediately with `purge`.

    A failed version was never loaded and cannot be restored, so it is deleted.
    """
    version = control.publications.get(model, number)
    purge = purge or version.state is VersionState.FAILED
    if not purge or version.state is VersionState.PUBLISHED:
        version = await control.retention.retire(model, number, who)
        who = replace(who, if_match="")  # it was for the record as it was
    if purge:
        version = await control.retention.remove(model, number, who)
    return await _view(control, version, response)


@router.post(_PATH + "/restore", summary="Restore a retired version", responses=_IN_USE)
async def restore_version(
    model: str, number: int, control: InControl, who: ByWhom, response: Response
) -> VersionView:
    """Loads the version again. Labels and routes do not change."""
    return await _view(control, await control.retention.restore(model, number, who), response)


@router.post("/api/gc", summary="Collect garbage")
async def collect_garbage(body: GarbageBody, control: InControl, who: ByWhom) -> GarbageView:
    """Deletes old retired and failed versions, and files that nothing needs. `dry_run` only lists
    them.
    """
    found = await control.retention.collect(
        body.keep, grace=body.grace, dry_run=body.dry_run, by=who
    )
    items = [GarbageItem(kind=g.kind, name=g.name, size=g.size, why=g.why) for g in found]
    freed = sum(item.size for item in items if item.kind == "blob")
    return GarbageView(dry_run=body.dry_run, bytes=freed, items=items)


async def _view(
    control: AdminContext, version: PublishedVersion, response: Response
) -> VersionView:
    response.headers["etag"] = version.etag
    files: tuple[VersionFile, ...] = ()
    if version.state in (VersionState.PUBLISHED, VersionState.RETIRED):
        files = (await control.storage.manifest(version.model, version.number)).files
    state, reason = version.state.value, version.reason
    replicas: tuple[str, ...] = ()
    flavours: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    if version.is_published:
        seen = control.models.version(version.model, version.number)
        state = VersionState.SERVING.value if seen.serving else seen.state
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
