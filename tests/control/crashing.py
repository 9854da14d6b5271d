"""What processes do that tests start: publish, upload, put files in place, write to a store."""

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

from control.delivering_scene import CONFIG, Shelf
from control.publishing import Scene, files, play
from control.storage_scene import pieces

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.version_folder import materialise
from serve.control.publication.publications import PublicationRequest
from serve.control.storage.store import Store, StoreEdit
from serve.control.uploads.uploads import Uploads
from serve.core.errors import PreconditionFailed
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


def write(talk: Connection, where: Path | str, me: str, work: str, rounds: int) -> None:
    """Say that it is ready, wait for a word, do one kind of work, and say what came of it."""
    store = Store(where, clock=lambda: 0.0)

    async def one(turn: int) -> int:
        if work == "generations":
            return await store.next_generation(0)
        if work == "chain":
            return await store.apply(StoreEdit("route", "m", [me, turn], me))
        try:
            return await store.apply(StoreEdit("route", f"m{turn}", me, me, if_match='"0"'))
        except PreconditionFailed:
            return 0

    async def main() -> None:
        await store.read()
        talk.send("ready")
        talk.recv()
        talk.send([await one(turn) for turn in range(rounds)])

    asyncio.run(main())


def migrate(talk: Connection, where: Path | str) -> None:
    """Bring a store up to date, after a word."""
    talk.send("ready")
    talk.recv()
    Store(where, clock=lambda: 0.0).migrate()
