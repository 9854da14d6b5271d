"""The storage, on a folder and on a real S3 server alike."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from control.storage_scene import DATA, collected, digest, file, listed, manifest, written
from object_store import ObjectStore
from refusals import refusal

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
