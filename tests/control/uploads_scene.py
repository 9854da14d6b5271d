"""Uploads into a storage in a folder, for the tests of what they take and what they refuse."""

from pathlib import Path

from builders import Clock
from control.storage_scene import DATA, digest, file, listed, pieces

from serve.control.artifacts.durable import Disk
from serve.control.artifacts.folder import FolderObjects
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.upload import Upload
from serve.control.uploads.uploads import UploadLimits, Uploads
from serve.core.versions import VersionFile

OTHER = b"labels\n" * 100
FILES = (file(), file(OTHER, "labels.txt"), file(b"", "1/empty"), file(DATA, "1/copy.onnx"))


class Scene:
    """Uploads into a storage in a folder; `restart` is another process on the same folder."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: UploadLimits | None = None,
        disk: Disk | None = None,
        storage_disk: Disk | None = None,
    ) -> None:
        self.folder = folder / "uploads"
        self.wall = Clock(1_700_000_000.0)
        self.storage = ArtifactStorage(FolderObjects(folder / "storage", disk=storage_disk))
        self.limits, self.disk = limits, disk
        self.uploads = self.restart()

    def restart(self) -> Uploads:
        self.uploads = Uploads(
            self.folder, self.storage, limits=self.limits, wall=self.wall, disk=self.disk
        )
        return self.uploads

    async def begin(self, *files: VersionFile, model: str = "digits") -> Upload:
        return await self.uploads.begin(model, files or FILES, "ada")

    async def send(self, upload: Upload, data: bytes = DATA, start: int = 0, end: int = -1) -> int:
        part = data[start:] if end < 0 else data[start:end]
        return await self.uploads.append(upload.id, digest(data), start, pieces(part))

    async def stored(self) -> dict[str, bytes]:
        blobs = await listed(self.storage.blobs())
        return {one: await self.storage.read(one, most=size) for one, size, _ in blobs}
