"""What processes do that die at a failpoint, or are killed: publish, upload, put files in place."""

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from control.delivering_scene import CONFIG, Shelf
from control.publishing import Scene, files, play
from control.storage_scene import pieces

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.version_folder import materialise
from serve.control.publication.publications import PublicationRequest
from serve.control.uploads.uploads import Uploads
from serve.core.versions import VersionFile
from serve.processes.failpoints import arm


def publish(talk: Connection, folder: Path, failpoint: str) -> None:
    """Bring version 1 of model m up to its label."""
    arm(failpoint)
    scene = Scene(folder)
    scene.ready.add(("m", 1))

    async def run() -> None:
        await scene.push("m", files(), PublicationRequest(labels=("new",)))
        await scene.pipeline.round()
        await scene.pending.round()

    play(scene, run)


def upload(talk: Connection, folder: Path, source: Path, sha256: str, failpoint: str) -> None:
    """Take the file in, from where the last process ended; say from where, and that it is whole."""
    arm(failpoint)
    one = VersionFile("1/model.onnx", source.stat().st_size, sha256)

    async def run() -> None:
        uploads = Uploads(folder / "uploads", ArtifactStorage.of(str(folder / "storage")))
        begun = await uploads.begin("digits", [one], "ada")
        for missing in await uploads.missing(begun.id):
            talk.send(missing.offset)
            with source.open("rb") as data:
                data.seek(missing.offset)
                parts = iter(lambda: data.read(65536), b"")
                await uploads.append(begun.id, sha256, missing.offset, pieces(*parts))
        await uploads.require_whole(begun.id)
        talk.send("whole")

    asyncio.run(run())


def build(talk: Connection, folder: Path, repository: Path, failpoint: str) -> None:
    """Put version 1 of digits into a repository."""
    arm(failpoint)
    shelf = Shelf(folder)
    shelf.publish(beside={"labels.txt": b"zero"})
    asyncio.run(materialise(shelf, shelf.manifests["digits", 1], CONFIG, repository))
