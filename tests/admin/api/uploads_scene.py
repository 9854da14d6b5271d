"""The admin API with real uploads into a real storage; publications are only noted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from admin.api.admin_scene import control_of
from builders import ControlPlane, until
from control.storage_scene import DATA, digest, file
from fastapi import FastAPI

from serve.admin.api.application import create
from serve.app.http_server import HttpServer
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.models import By
from serve.control.publication.publications import PublicationRequest
from serve.control.uploads.upload import Upload
from serve.control.uploads.uploads import UploadLimits, Uploads
from serve.control.versions import PublishedVersion
from serve.core.versions import Provenance, VersionState

BODY = {"model": "digits", "files": [file().to_json()]}
PIECE = {"upload-offset": "0", "content-type": "application/offset+octet-stream"}


@dataclass(slots=True)
class FakePublications:
    """Stands for `Publications`: every commit makes the next version."""

    asked: list[tuple[Upload, PublicationRequest, By]] = field(default_factory=list)
    known: PublishedVersion | None = None

    async def existing(self, model: str, content: str) -> PublishedVersion | None:
        return self.known

    async def begin(
        self, upload: Upload, ask: PublicationRequest, by: By
    ) -> tuple[PublishedVersion, bool]:
        self.asked.append((upload, ask, by))
        made = version(upload, len(self.asked))
        return self.known or made, self.known is None


def version(
    upload: Upload, number: int = 1, state: VersionState = VersionState.UPLOADED
) -> PublishedVersion:
    origin = Provenance("ada", 1.0)
    return PublishedVersion(upload.model, number, state, upload.content, origin, upload=upload.id)


class UploadsScene:
    """The application, and what is behind it."""

    def __init__(
        self, folder: Path, *, needs_key: bool = False, limits: UploadLimits | None = None
    ) -> None:
        self.folder = folder / "uploads"
        self.plane = ControlPlane(folder)
        self.storage = ArtifactStorage.of(str(folder / "storage"))
        self.uploads = Uploads(self.folder, self.storage, limits=limits)
        self.publications = FakePublications()
        self.control = control_of(
            self.plane,
            storage=self.storage,
            uploads=self.uploads,
            publications=self.publications,
            needs_key=lambda guarded: needs_key,
        )

    def app(self, **changes: Any) -> FastAPI:
        return create(replace(self.control, **changes), hosts=["localhost", "127.0.0.1"])

    def begun(self) -> str:
        """The id of an upload of one file, `DATA`."""
        return asyncio.run(self.uploads.begin("digits", [file()], "ada")).id

    def staged(self) -> bytes:
        """What has come of the file's blob."""
        path = self.folder / "staging" / f"{digest(DATA)}-{len(DATA)}"
        return path.read_bytes() if path.exists() else b""

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        """The application on a real port."""
        server = HttpServer(self.app(), host="127.0.0.1", port=0, timeout_graceful_shutdown=2)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve())
            await until(lambda: server.started)
            yield server.servers[0].sockets[0].getsockname()[1]
            server.should_exit = True


def blob(identity: str, sha256: str = digest(DATA)) -> str:
    """The path of a blob."""
    return f"/api/uploads/{identity}/blobs/{sha256}"
