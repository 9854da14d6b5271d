"""Uploads over the admin API: content-addressed, resumable at any byte.

A client names the files of a version with their digests, and is told which blobs are missing and
where each goes on. It sends them in as many requests as it likes, each from where the last one
ended (`Upload-Offset`, as in tus 1.0), and commits. Asked again, the same files are the same
upload. The source of a conversion comes the same way, but for the commit (`conversions.py`).
"""

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.control.publication.publications import PublicationRequest
from serve.control.publication.records import IN_PROGRESS
from serve.control.stored_conversions import users_of
from serve.control.uploads.upload import Upload, UploadKind
from serve.core.errors import InUse, Invalid
from serve.core.versions import VersionFile

MEDIA_TYPE = "application/offset+octet-stream"
_OFFSET, _LENGTH = "upload-offset", "upload-length"
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

router = APIRouter(
    tags=["uploads"],
    responses={
        404: {"model": schemas.ErrorBody},
        507: {
            "model": schemas.ErrorBody,
            "description": "The disk is full, or the quota is used up.",
        },
    },
)
Id = Annotated[str, Path(max_length=100)]
Digest = Annotated[str, Path(max_length=100, description="SHA-256 of the blob in hexadecimal.")]
Word = Annotated[str, Field(max_length=200)]


class FileBody(BaseModel):
    """One file: its path in the model's folder, its bytes, and its SHA-256 in hexadecimal."""

    model_config = ConfigDict(extra="forbid")
    path: str = Field(max_length=1000)
    size: int = Field(ge=0)
    sha256: str = Field(max_length=100)


class UploadBody(BaseModel):
    """The files of a version, or the source of a conversion."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "model": "digits",
                    "files": [{"path": "1/model.onnx", "size": 0, "sha256": _EMPTY}],
                }
            ]
        },
    )
    model: str = Field(max_length=300)
    files: list[FileBody]
    kind: UploadKind = UploadKind.VERSION


class MissingBlob(BaseModel):
    """A blob to send, starting at byte `offset`."""

    sha256: str
    size: int
    offset: int


class UploadBegun(BaseModel):
    """The blobs to send. `existing` is the number of a version with this content."""

    id: str
    model: str
    content: str
    missing: list[MissingBlob]
    existing: int | None


class UploadView(BaseModel):
    """An unfinished upload: its files, its bytes, and the time of the last request."""

    id: str
    model: str
    content: str
    kind: UploadKind
    author: str
    begun: datetime
    files: int
    size: int


class CommitBody(BaseModel):
    """Options of the new version, and its origin.

    `labels` point to the version when it is ready. With `live`, all calls then go to it. `again`
    makes a version even if one with this content exists.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"labels": ["candidate"], "git_commit": "4f2a91c"}]},
    )
    labels: list[Word] = Field(default=[], max_length=20)
    live: bool = False
    again: bool = False
    source: str = Field(default="", max_length=1000)
    git_commit: Word = ""
    tools: dict[Word, Word] = Field(default={}, max_length=50)
    tags: dict[Word, Annotated[str, Field(max_length=1000)]] = Field(default={}, max_length=50)


class CommittedView(BaseModel):
    """The version of the upload. `created` is false if its content already existed."""

    model: str
    version: int
    state: str
    created: bool


@router.post("/api/uploads", summary="Start or resume an upload")
async def begin_upload(body: UploadBody, control: InControl, who: ByWhom) -> UploadBegun:
    """Blobs that the storage already has do not need to be sent, whichever model they belong to."""
    files = [VersionFile(file.path, file.size, file.sha256) for file in body.files]
    upload = await control.uploads.begin(body.model, files, who.author, body.kind)
    missing = await control.uploads.missing(upload.id)
    existing = await control.publications.existing(upload.model, upload.content)
    return UploadBegun(
        id=upload.id,
        model=upload.model,
        content=upload.content,
        missing=[MissingBlob(sha256=m.sha256, size=m.size, offset=m.offset) for m in missing],
        existing=existing.number if existing else None,
    )


@router.get("/api/uploads", summary="List unfinished uploads")
async def list_uploads(control: InControl) -> list[UploadView]:
    """Returns uploads that were not published or cancelled, the oldest first."""
    return [_view(upload) for upload in control.uploads.all()]


@router.head("/api/uploads/{id}/blobs/{sha256}", summary="Get the offset of a blob")
async def head_blob(id: Id, sha256: Digest, control: InControl) -> Response:
    """`Upload-Offset` is the next byte to send, `Upload-Length` the size."""
    file = control.uploads.blob(id, sha256)
    offset = await control.uploads.offset(id, sha256)
    headers = {_OFFSET: str(offset), _LENGTH: str(file.size), "cache-control": "no-store"}
    return Response(headers=headers)


@router.patch(
    "/api/uploads/{id}/blobs/{sha256}",
    status_code=204,
    summary="Send bytes of a blob",
    responses={
        409: {"model": schemas.ErrorBody, "description": "Upload-Offset is not the next byte."}
    },
)
async def patch_blob(
    id: Id,
    sha256: Digest,
    request: Request,
    control: InControl,
    upload_offset: Annotated[int, Header(ge=0)],
    content_type: Annotated[str, Header()] = "",
    content_length: Annotated[int, Header(ge=0)] = 0,
) -> Response:
    """The body is `application/offset+octet-stream`. All received bytes are kept.

    After the last byte, the blob is verified and stored.
    """
    if content_type.partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise Invalid(f"the content type '{content_type[:100]}' is not {MEDIA_TYPE}")
    size = control.uploads.blob(id, sha256).size
    if upload_offset + content_length > size:
        raise Invalid(
            f"{content_length} bytes from byte {upload_offset} on exceed the announced size",
            why=f"the blob has {size} bytes",
        )
    try:
        offset = await control.uploads.append(id, sha256, upload_offset, request.stream())
    except ClientDisconnect:
        return Response(status_code=400)  # which nobody reads
    return Response(status_code=204, headers={_OFFSET: str(offset)})


@router.post(
    "/api/uploads/{id}/commit",
    status_code=202,
    summary="Publish an upload",
    responses={409: {"model": schemas.ErrorBody, "description": "Some bytes are missing."}},
)
async def commit_upload(id: Id, body: CommitBody, control: InControl, who: ByWhom) -> CommittedView:
    """Returns the version number immediately. The version is checked and tried before it is
    published.
    """
    upload = await control.uploads.require_whole(id)
    if upload.kind is not UploadKind.VERSION:
        raise Invalid(
            f"upload '{id}' cannot be published",
            why="it is the source of a conversion",
            try_this="POST /api/conversions",
        )
    ask = PublicationRequest(
        labels=tuple(body.labels),
        live=body.live,
        again=body.again,
        source=body.source,
        git_commit=body.git_commit,
        tools=MappingProxyType(body.tools),
        tags=MappingProxyType(body.tags),
    )
    version, created = await control.publications.begin(upload, ask, who)
    return CommittedView(
        model=version.model, version=version.number, state=version.state, created=created
    )


@router.delete(
    "/api/uploads/{id}",
    status_code=204,
    summary="Cancel an upload",
    responses={409: {"model": schemas.ErrorBody, "description": "The upload is being published."}},
)
async def delete_upload(id: Id, control: InControl) -> Response:
    """Deletes partially received blobs that no other upload needs. Garbage collection deletes
    stored blobs.
    """
    control.uploads.get(id)
    users = _users(control, id)
    if users:
        raise InUse(f"upload '{id}'", users)
    await control.uploads.forget(id)
    return Response(status_code=204)


def _users(control: AdminContext, identity: str) -> tuple[str, ...]:
    """The versions that are on their way and come from this upload, and conversions of it."""
    decisions = control.models.decisions
    versions = tuple(
        f"version {version.number} of model '{version.model}'"
        for versions in decisions.versions.values()
        for version in versions.values()
        if version.upload == identity and version.state in IN_PROGRESS
    )
    return versions + tuple(users_of(identity, decisions))


def _view(upload: Upload) -> UploadView:
    return UploadView(
        id=upload.id,
        model=upload.model,
        content=upload.content,
        kind=upload.kind,
        author=upload.author,
        begun=datetime.fromtimestamp(upload.begun, UTC),
        files=len(upload.files),
        size=sum(file.size for file in upload.files),
    )
