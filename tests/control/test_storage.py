"""The storage, on a folder and on a real S3 server alike."""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from control.storage_scene import (
    DATA,
    ENOSPC,
    FullDisk,
    collected,
    digest,
    file,
    listed,
    manifest,
    names_in,
    written,
)
from object_store import ObjectStore
from refusals import refusal

from serve.control.artifacts.durable import DRAFT, Disk
from serve.control.artifacts.folder import FolderObjects
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.shelves import StorageShelf
from serve.core.errors import (
    CannotStart,
    Conflict,
    DigestMismatch,
    Invalid,
    NoSpace,
    NotFound,
    Unavailable,
)

LARGE = bytes(range(251)) * 80_000  # 20 MB: several ranges, several parts


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStorage:
    if request.param == "folder":
        return ArtifactStorage.of(str(tmp_path / "storage"))
    running: ObjectStore = request.getfixturevalue("s3")
    return ArtifactStorage.of(running.bucket("some/prefix"), **running.config)


async def test_a_file_is_kept_once_and_moved_away(storage: ArtifactStorage, tmp_path: Path) -> None:
    one = file()
    assert not await storage.has(one.sha256, one.size)
    for name in ("one", "two"):
        path = written(tmp_path / name)
        await storage.add_file(path, one)
        assert not path.exists()
    assert await storage.has(one.sha256, one.size)
    assert not await storage.has(one.sha256, one.size + 1)
    assert await storage.read(one.sha256, most=len(DATA)) == DATA
    assert [sha256 for sha256, *_ in await listed(storage.blobs())] == [one.sha256]


async def test_a_file_of_another_size_than_said_is_refused(
    storage: ArtifactStorage, tmp_path: Path
) -> None:
    path = written(tmp_path / "staged", b"short")
    with pytest.raises(DigestMismatch):
        await storage.add_file(path, file())
    assert path.exists()
    await storage.add_bytes(DATA)
    with pytest.raises(DigestMismatch):
        await storage.fetch(replace(file(), size=5), tmp_path / "target")
    assert not list(tmp_path.glob("*target*")) and not list(tmp_path.glob(".draft*"))


async def test_bytes_are_kept_under_their_digest(storage: ArtifactStorage) -> None:
    for data in (b"text", b"text", b""):
        assert await storage.add_bytes(data) == (len(data), digest(data))
        assert await storage.read(digest(data), most=len(data)) == data
    with pytest.raises(Invalid):  # it is more than its reader can hold
        await storage.read(digest(b"text"), most=3)


async def test_what_is_not_there_is_not_found(storage: ArtifactStorage, tmp_path: Path) -> None:
    for looked_for in (
        storage.read(digest(b"nothing"), most=10),
        collected(storage.stream(digest(b"nothing"))),
        storage.fetch(file(b"nothing"), tmp_path / "target"),
        storage.manifest("digits", 1),
    ):
        with pytest.raises(NotFound):
            await looked_for
    assert not (tmp_path / "target").exists()


async def test_a_large_blob_streams_from_any_byte_on(
    storage: ArtifactStorage, tmp_path: Path
) -> None:
    one = file(LARGE)
    await storage.add_file(written(tmp_path / "staged", LARGE), one)
    assert await collected(storage.stream(one.sha256)) == LARGE
    assert await collected(storage.stream(one.sha256, 15_000_001)) == LARGE[15_000_001:]
    assert await collected(storage.stream(one.sha256, len(LARGE))) == b""


async def test_a_blob_is_fetched_over_what_was_there_and_leaves_no_draft(
    storage: ArtifactStorage, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    await storage.add_file(written(tmp_path / "staged"), file())
    await storage.fetch(file(), folder / "model.onnx")
    await storage.fetch(file(), folder / "model.onnx")
    written(folder / "wrong", b"other")
    await storage.fetch(file(), folder / "wrong")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "model.onnx": DATA,
        "wrong": DATA,
    }


async def test_a_manifest_is_written_once(storage: ArtifactStorage) -> None:
    await storage.put_manifest(manifest())
    await storage.put_manifest(manifest())
    with pytest.raises(Conflict):
        await storage.put_manifest(manifest(author="eve"))
    assert await storage.manifest("digits", 1) == manifest()


async def test_of_many_who_publish_one_number_at_once_one_wins(storage: ArtifactStorage) -> None:
    tries = (storage.put_manifest(manifest(author=str(n))) for n in range(8))
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    winner = int((await storage.manifest("digits", 1)).provenance.author)
    assert [isinstance(one, Conflict) for one in outcomes] == [n != winner for n in range(8)]


async def test_manifests_are_listed_and_removed(storage: ArtifactStorage) -> None:
    for one in (manifest(1), manifest(12), manifest(3, model="other.model-1")):
        await storage.put_manifest(one)
    assert sorted(await listed(storage.manifests())) == [
        ("digits", 1),
        ("digits", 12),
        ("other.model-1", 3),
    ]
    await storage.remove_manifest("digits", 12)
    await storage.remove_manifest("digits", 12)
    assert len(await listed(storage.manifests())) == 2


async def test_blobs_are_listed_with_size_and_time_and_removed(
    storage: ArtifactStorage, tmp_path: Path
) -> None:
    await storage.add_bytes(b"text")
    await storage.add_file(written(tmp_path / "staged"), file())
    await storage.put_manifest(manifest())
    blobs = await listed(storage.blobs())
    now = written(tmp_path / "now").stat().st_mtime
    assert sorted((sha256, size) for sha256, size, _ in blobs) == sorted(
        [(digest(b"text"), 4), (file().sha256, file().size)]
    )
    assert all(abs(at - now) < 60 for *_, at in blobs)
    for sha256, *_ in (*blobs, *blobs):
        await storage.remove_blob(sha256)
    assert await listed(storage.blobs()) == []


async def test_bytes_that_were_damaged_in_a_bucket_are_not_fetched(
    s3: ObjectStore, tmp_path: Path
) -> None:
    storage = ArtifactStorage.of(s3.bucket(), **s3.config)
    lie = replace(file(b"x" * len(DATA)), sha256=file().sha256)
    await storage.add_file(written(tmp_path / "staged", b"x" * len(DATA)), lie)
    assert storage.local_path(lie.sha256) is None  # it lies on no disk of this machine
    with pytest.raises(DigestMismatch):
        await storage.fetch(file(), tmp_path / "target")
    with pytest.raises(DigestMismatch):
        await storage.read(file().sha256, most=len(DATA))
    assert list(tmp_path.iterdir()) == []


async def test_a_bucket_that_does_not_exist_or_answer_is_unavailable(
    s3: ObjectStore, tmp_path: Path
) -> None:
    path = written(tmp_path / "staged")
    missing = ArtifactStorage.of("s3://no-such-bucket/prefix", **s3.config)
    for work in (missing.add_bytes(b"text"), missing.add_file(path, file())):
        with pytest.raises(Unavailable) as caught:
            await work
        assert "s3://no-such-bucket/prefix" in caught.value.what and "\n" not in str(caught.value)
    assert path.exists()
    away = ArtifactStorage.of(s3.bucket(), **(s3.config | {"endpoint": "http://127.0.0.1:9"}))
    with pytest.raises(Unavailable):
        await away.has(digest(DATA), len(DATA))


def test_only_buckets_and_folders_can_be_the_storage_with_what_a_provider_needs(
    s3: ObjectStore,
) -> None:
    for url in ("https://example.com/x", "ftp://host/x", "file:///x"):
        refusal(CannotStart, ArtifactStorage.of, url)
    unknown = s3.config | {"nonsense": "x"}
    assert "not valid" in str(refusal(CannotStart, ArtifactStorage.of, "s3://b/prefix", **unknown))
    azure = {"account_name": "account", "account_key": "a2V5"}
    for url, config in (("gs://bucket/prefix", {}), ("az://container/prefix", azure)):
        assert url in repr(ArtifactStorage.of(url, **config))


# --- folders: links, full disks, other disks, crashes ---------------------------------------------


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


# --- shelves: things in parts, there once their line is, of which the newest stay -----------------


def shelf_in(folder: Path) -> StorageShelf:
    return StorageShelf(FolderObjects(folder), "things", kept=3)


async def add(shelf: StorageShelf, *names: str) -> None:
    for name in names:
        await shelf.put(name, "part", name.encode())
        await shelf.show(name, {"called": name})


async def test_a_thing_is_there_when_its_line_is(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path)
    await shelf.put("a", "part", b"1")
    assert await shelf.names() == []
    await shelf.show("a", {"called": "a"})
    assert (await shelf.names(), await shelf.line("a")) == (["a"], {"called": "a"})
    assert await shelf.read("a", "part") == b"1"


async def test_the_oldest_go_with_all_their_parts_also_those_of_an_earlier_process(
    tmp_path: Path,
) -> None:
    shelf = shelf_in(tmp_path)
    await add(shelf, "a", "b", "a", "c")  # one that is shown again is still one
    assert sorted(await shelf.names()) == ["a", "b", "c"]
    await add(shelf, "d", "e", "f")
    assert await shelf.names() == ["f", "e", "d"]
    with pytest.raises(NotFound):
        await shelf.read("c", "part")
    later = shelf_in(tmp_path)
    await add(later, "g")
    assert await later.names() == ["g", "f", "e"]
    await later.remove("f")
    await add(later, "h")
    assert await later.names() == ["h", "g", "e"]
