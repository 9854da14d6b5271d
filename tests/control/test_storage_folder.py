"""What is special about a storage in a folder: links, full disks, other disks, crashes."""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from control.storage_scene import (
    DATA,
    ENOSPC,
    FullDisk,
    file,
    listed,
    manifest,
    names_in,
    written,
)

from serve.control.artifacts.durable import DRAFT, Disk
from serve.control.artifacts.folder import FolderObjects
from serve.control.artifacts.storage import ArtifactStorage
from serve.core.errors import CannotStart, NoSpace, NotFound


class OtherDisk(Disk):
    """As if the staging files lay on another disk."""

    def rename(self, source: Path, target: Path) -> None:
        if not source.name.startswith(DRAFT):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().rename(source, target)


def storage_on(disk: Disk, folder: Path) -> ArtifactStorage:
    return ArtifactStorage(FolderObjects(folder / "storage", disk=disk))


async def test_a_fetched_file_is_the_blob_itself_and_nobody_can_write_it(tmp_path: Path) -> None:
    storage = storage_on(Disk(), tmp_path)
    await storage.add_file(written(tmp_path / "staged"), file())
    await storage.fetch(file(), tmp_path / "served")
    blob = storage.local_path(file().sha256)
    assert blob is not None and blob.samefile(tmp_path / "served")
    assert stat.S_IMODE(blob.stat().st_mode) == 0o444
    before = (tmp_path / "served").stat()  # it is in use, and must not look changed
    await storage.fetch(file(), tmp_path / "second")
    (tmp_path / "second").unlink()
    await storage.fetch(file(), tmp_path / "third")
    assert (tmp_path / "third").read_bytes() == DATA
    assert (tmp_path / "served").stat().st_ctime_ns == before.st_ctime_ns


def test_a_file_of_another_disk_is_copied(tmp_path: Path) -> None:
    storage = storage_on(OtherDisk(), tmp_path)
    path = written(tmp_path / "staged")
    asyncio.run(storage.add_file(path, file()))
    assert asyncio.run(storage.read(file().sha256, most=len(DATA))) == DATA
    assert not path.exists()
    assert len(names_in(tmp_path / "storage")) == 1


class NeitherDisk(OtherDisk):
    """Another disk, and no space for a copy."""

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        raise ENOSPC


@pytest.mark.parametrize("disk", [FullDisk("rename"), FullDisk("sync"), NeitherDisk()])
async def test_a_full_disk_takes_nothing_and_leaves_a_file_where_it_was(
    tmp_path: Path, disk: Disk
) -> None:
    storage, path = storage_on(disk, tmp_path), written(tmp_path / "staged")
    for work in (storage.add_file(path, file()), storage.add_bytes(b"text")):
        with pytest.raises(NoSpace):
            await work
    assert path.read_bytes() == DATA
    assert names_in(tmp_path / "storage") == []
    await storage_on(Disk(), tmp_path).add_file(path, file())


@pytest.mark.parametrize("disk", [FullDisk("link"), FullDisk(left=100)])
def test_a_manifest_for_which_there_is_no_space_is_not_there_at_all(
    tmp_path: Path, disk: FullDisk
) -> None:
    storage = storage_on(disk, tmp_path)
    with pytest.raises(NoSpace):
        asyncio.run(storage.put_manifest(manifest()))
    with pytest.raises(NotFound):
        asyncio.run(storage.manifest("digits", 1))
    assert names_in(tmp_path / "storage") == []


def test_drafts_of_a_crash_are_swept_but_not_those_of_today(tmp_path: Path) -> None:
    ArtifactStorage.of(str(tmp_path))
    old = written(tmp_path / "drafts" / f"{DRAFT}old")
    written(tmp_path / "drafts" / f"{DRAFT}new")
    os.utime(old, (0, 0))
    ArtifactStorage.of(str(tmp_path))
    assert names_in(tmp_path) == [f"drafts/{DRAFT}new"]


def test_files_that_people_put_into_the_storage_are_no_blobs(tmp_path: Path) -> None:
    storage = ArtifactStorage.of(str(tmp_path))
    (tmp_path / "blobs" / "ab").mkdir(parents=True)
    written(tmp_path / "blobs" / "ab" / "notes.txt")
    assert asyncio.run(listed(storage.blobs())) == []


def test_a_folder_that_cannot_be_made_is_no_storage(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="cannot be created"):
        ArtifactStorage.of(str(written(tmp_path / "file") / "storage"))


class _Full(BaseHTTPRequestHandler):
    """An S3 server whose disk is full."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(507)
        self.end_headers()
        self.wfile.write(b"<Error><Code>XMinioStorageFull</Code></Error>")

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def full() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Full)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_bucket_that_is_full_is_told_as_such(full: str) -> None:
    keys = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
    storage = ArtifactStorage.of("s3://bucket/prefix", endpoint=full, **keys)
    with pytest.raises(NoSpace):
        await storage.add_bytes(b"text")
