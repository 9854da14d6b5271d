"""The storage, on a folder and on a real S3 server alike."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from control.storage_scene import DATA, collected, digest, file, listed, manifest, written
from object_store import ObjectStore

from serve.control.artifacts.storage import ArtifactStorage
from serve.core.errors import (
    CannotStart,
    Conflict,
    DigestMismatch,
    Invalid,
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


async def test_a_file_is_kept_and_moved_away(storage: ArtifactStorage, tmp_path: Path) -> None:
    path, one = written(tmp_path / "staged"), file()
    assert not await storage.has(one.sha256, one.size)
    await storage.add_file(path, one)
    assert await storage.has(one.sha256, one.size)
    assert not await storage.has(one.sha256, one.size + 1)
    assert await storage.read(one.sha256, most=len(DATA)) == DATA
    assert not path.exists()


async def test_the_same_file_again_is_no_error(storage: ArtifactStorage, tmp_path: Path) -> None:
    for name in ("one", "two"):
        await storage.add_file(written(tmp_path / name), file())
    assert [sha256 for sha256, *_ in await listed(storage.blobs())] == [file().sha256]


def test_a_file_of_another_size_than_said_is_refused(
    storage: ArtifactStorage, tmp_path: Path
) -> None:
    path = written(tmp_path / "staged", b"short")
    with pytest.raises(DigestMismatch):
        asyncio.run(storage.add_file(path, file()))
    assert path.exists()


async def test_bytes_are_kept_under_their_digest(storage: ArtifactStorage) -> None:
    assert await storage.add_bytes(b"text") == (4, digest(b"text"))
    assert await storage.add_bytes(b"text") == (4, digest(b"text"))
    assert await storage.add_bytes(b"") == (0, digest(b""))
    assert await storage.read(digest(b"text"), most=4) == b"text"
    assert await storage.read(digest(b""), most=0) == b""


async def test_more_than_a_reader_can_hold_is_refused(storage: ArtifactStorage) -> None:
    await storage.add_bytes(b"text")
    with pytest.raises(Invalid):
        await storage.read(digest(b"text"), most=3)


async def test_what_is_not_there_is_not_found(storage: ArtifactStorage, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await storage.read(digest(b"nothing"), most=10)
    with pytest.raises(NotFound):
        await collected(storage.stream(digest(b"nothing")))
    with pytest.raises(NotFound):
        await storage.fetch(file(b"nothing"), tmp_path / "target")
    with pytest.raises(NotFound):
        await storage.manifest("digits", 1)
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


async def test_a_blob_that_has_not_the_size_it_should_is_not_fetched(
    storage: ArtifactStorage, tmp_path: Path
) -> None:
    await storage.add_bytes(DATA)
    with pytest.raises(DigestMismatch):
        await storage.fetch(replace(file(), size=5), tmp_path / "target")
    assert not list(tmp_path.glob("*target*")) and not list(tmp_path.glob(".draft*"))


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


def test_only_a_folder_lies_on_this_machine(s3: ObjectStore, tmp_path: Path) -> None:
    bucket = ArtifactStorage.of(s3.bucket(), **s3.config)
    folder = ArtifactStorage.of(str(tmp_path))
    assert bucket.local_path(file().sha256) is None
    asyncio.run(folder.add_bytes(DATA))
    path = folder.local_path(file().sha256)
    assert path is not None and path.read_bytes() == DATA


async def test_bytes_that_were_damaged_in_a_bucket_are_not_fetched(
    s3: ObjectStore, tmp_path: Path
) -> None:
    storage = ArtifactStorage.of(s3.bucket(), **s3.config)
    lie = replace(file(b"x" * len(DATA)), sha256=file().sha256)
    await storage.add_file(written(tmp_path / "staged", b"x" * len(DATA)), lie)
    with pytest.raises(DigestMismatch):
        await storage.fetch(file(), tmp_path / "target")
    with pytest.raises(DigestMismatch):
        await storage.read(file().sha256, most=len(DATA))
    assert list(tmp_path.iterdir()) == []


def test_a_bucket_that_does_not_exist_is_unavailable(s3: ObjectStore, tmp_path: Path) -> None:
    storage = ArtifactStorage.of("s3://no-such-bucket/prefix", **s3.config)
    path = written(tmp_path / "staged")
    for work in (storage.add_bytes(b"text"), storage.add_file(path, file())):
        with pytest.raises(Unavailable) as caught:
            asyncio.run(work)
        assert "s3://no-such-bucket/prefix" in caught.value.what and "\n" not in str(caught.value)
    assert path.exists()


@pytest.mark.parametrize("url", ["https://example.com/x", "ftp://host/x", "file:///x"])
def test_an_address_of_another_kind_cannot_be_the_storage(url: str) -> None:
    with pytest.raises(CannotStart):
        ArtifactStorage.of(url)


@pytest.mark.parametrize(
    ("url", "config"),
    [
        ("gs://bucket/prefix", {}),
        ("az://container/prefix", {"account_name": "account", "account_key": "a2V5"}),
    ],
)
def test_the_buckets_of_other_providers_need_only_their_configuration(
    url: str, config: dict[str, str]
) -> None:
    assert url in repr(ArtifactStorage.of(url, **config))


def test_what_a_provider_needs_and_has_not_got_is_told(s3: ObjectStore) -> None:
    with pytest.raises(CannotStart, match="not valid"):
        ArtifactStorage.of("s3://bucket/prefix", **s3.config, nonsense="x")
