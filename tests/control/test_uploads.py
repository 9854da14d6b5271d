"""Uploads: what is taken, what is refused, and where each blob goes on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import until
from control.storage_scene import DATA, digest, file, names_in, pieces
from control.uploads_scene import FILES, OTHER, Scene

from serve.control.uploads.upload import Upload, UploadKind
from serve.control.uploads.uploads import IncompleteBlob, UploadLimits
from serve.core.errors import (
    Conflict,
    DigestMismatch,
    Invalid,
    NoSpace,
    NotFound,
    UnknownUpload,
    WrongOffset,
)
from serve.core.versions import VersionFile


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_each_blob_is_sent_once_and_empty_files_never(scene: Scene) -> None:
    upload = await scene.begin()
    assert await scene.uploads.missing(upload.id) == (
        IncompleteBlob(digest(DATA), len(DATA), 0),
        IncompleteBlob(digest(OTHER), len(OTHER), 0),
    )
    assert await scene.send(upload) == len(DATA)
    assert await scene.send(upload, OTHER) == len(OTHER)
    assert await scene.uploads.missing(upload.id) == ()
    assert await scene.uploads.require_whole(upload.id) == upload
    assert set((await scene.stored()).values()) == {DATA, OTHER, b""}
    assert names_in(scene.folder / "staging") == []


async def test_the_same_model_and_files_are_the_same_upload(scene: Scene) -> None:
    first = await scene.begin()
    scene.wall.now += 60
    again = await scene.uploads.begin("digits", FILES[::-1], "eve")
    assert again == replace(first, begun=scene.wall.now)
    assert (await scene.begin(model="other")).id != first.id
    assert (await scene.begin(file())).id != first.id
    assert len(scene.uploads.all()) == 3


async def test_a_blob_goes_on_where_it_ended_and_nowhere_else(scene: Scene) -> None:
    upload = await scene.begin(file())
    assert await scene.send(upload, end=1000) == 1000
    assert await scene.uploads.offset(upload.id, digest(DATA)) == 1000
    missing = await scene.uploads.missing(upload.id)
    assert missing == (IncompleteBlob(digest(DATA), len(DATA), 1000),)
    for offset in (0, 999, 1001, len(DATA)):
        with pytest.raises(WrongOffset) as caught:
            await scene.uploads.append(upload.id, digest(DATA), offset, pieces(b"x"))
        assert caught.value.offset == 1000
    assert await scene.send(upload, start=1000) == len(DATA)
    assert DATA in (await scene.stored()).values()
    assert await scene.send(upload, start=len(DATA)) == len(DATA)
    with pytest.raises(WrongOffset) as caught:
        await scene.send(upload)
    assert caught.value.offset == len(DATA)


async def test_what_came_before_bytes_that_are_too_many_or_a_broken_connection_stays(
    scene: Scene,
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield DATA[3000:5000]
        raise ConnectionResetError

    upload = await scene.begin(file())
    with pytest.raises(Invalid):
        parts = pieces(DATA[:3000], DATA[3000:] + b"more")
        await scene.uploads.append(upload.id, digest(DATA), 0, parts)
    with pytest.raises(ConnectionResetError):
        await scene.uploads.append(upload.id, digest(DATA), 3000, broken())
    assert await scene.uploads.offset(upload.id, digest(DATA)) == 5000
    assert await scene.send(upload, start=5000) == len(DATA)


async def test_bytes_of_another_digest_are_thrown_away(scene: Scene) -> None:
    upload = await scene.begin(file())
    with pytest.raises(DigestMismatch):
        await scene.uploads.append(upload.id, digest(DATA), 0, pieces(b"x" * len(DATA)))
    assert await scene.uploads.offset(upload.id, digest(DATA)) == 0
    assert names_in(scene.folder / "staging") == [] and await scene.stored() == {}
    assert await scene.send(upload) == len(DATA)


async def test_two_clients_of_one_blob_take_turns_and_lose_nothing(scene: Scene) -> None:
    async def client(upload: Upload, size: int) -> None:
        offset = 0
        while offset < len(DATA):
            parts = (DATA[n : n + size] for n in range(offset, len(DATA), size))
            try:
                offset = await scene.uploads.append(upload.id, digest(DATA), offset, pieces(*parts))
            except WrongOffset as error:
                offset = error.offset

    upload, other = await scene.begin(file()), await scene.begin(file(), model="other")
    await asyncio.gather(client(upload, 700), client(upload, 1100), client(other, 64))
    assert await scene.stored() == {digest(DATA): DATA}
    assert await scene.uploads.missing(other.id) == ()


async def test_a_client_that_stalls_does_not_hold_up_another(scene: Scene) -> None:
    goes_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield DATA[:100]
        await goes_on.wait()
        yield DATA[100:]

    upload = await scene.begin(file())
    stalled = asyncio.create_task(scene.uploads.append(upload.id, digest(DATA), 0, slow()))
    name = f"staging/{digest(DATA)}-{len(DATA)}"
    await until(lambda: name in names_in(scene.folder))
    offset = await scene.uploads.offset(upload.id, digest(DATA))
    assert await scene.send(upload, start=offset) == len(DATA)
    goes_on.set()
    with pytest.raises(WrongOffset):
        await stalled
    assert await scene.stored() == {digest(DATA): DATA}


async def test_a_commit_says_what_is_missing_or_unknown(scene: Scene) -> None:
    upload = await scene.begin()
    await scene.send(upload, OTHER)
    await scene.send(upload, end=240)
    with pytest.raises(Conflict) as caught:
        await scene.uploads.require_whole(upload.id)
    assert "1 of 3 blobs" in caught.value.what
    assert "10000 bytes" in caught.value.why and "1/copy.onnx" in caught.value.why
    for identity in ("nope", "../../etc/passwd", ""):
        with pytest.raises(UnknownUpload):
            await scene.uploads.missing(identity)
    with pytest.raises(NotFound):
        await scene.uploads.append(upload.id, digest(b"x"), 0, pieces(b"x"))


async def test_an_upload_and_its_bytes_survive_a_restart(scene: Scene) -> None:
    upload = await scene.begin()
    await scene.send(upload, end=1000)
    scene.restart()
    assert scene.uploads.all() == (upload,)
    assert await scene.uploads.offset(upload.id, digest(DATA)) == 1000
    await scene.send(upload, start=1000)
    assert (await scene.stored())[digest(DATA)] == DATA
    other = await scene.begin(file(), model="other")  # a blob that any model has brought
    assert await scene.uploads.missing(other.id) == ()
    assert await scene.uploads.offset(other.id, digest(DATA)) == len(DATA)


async def test_an_upload_that_is_forgotten_takes_along_what_no_other_needs(scene: Scene) -> None:
    upload, other = await scene.begin(), await scene.begin(file(), model="other")
    await scene.send(upload, end=1000)
    await scene.send(upload, OTHER, end=10)
    await scene.uploads.forget(upload.id)
    await scene.uploads.forget(upload.id)
    with pytest.raises(UnknownUpload):
        scene.uploads.get(upload.id)
    assert names_in(scene.folder) == [
        f"records/{other.id}.json",
        f"staging/{digest(DATA)}-{len(DATA)}",
    ]
    assert await scene.send(other, start=1000) == len(DATA)


async def test_who_sends_to_an_upload_that_is_forgotten_meanwhile_is_told_so(scene: Scene) -> None:
    async def interrupted() -> AsyncIterator[bytes]:
        yield DATA[:100]
        await scene.uploads.forget(upload.id)
        await scene.begin(file())
        yield DATA[100:]

    upload = await scene.begin(file())
    with pytest.raises(WrongOffset) as caught:
        await scene.uploads.append(upload.id, digest(DATA), 0, interrupted())
    assert caught.value.offset == 0
    assert await scene.send(upload) == len(DATA)
    assert await scene.stored() == {digest(DATA): DATA}


async def test_a_sweep_drops_what_is_old_and_what_belongs_to_nothing(scene: Scene) -> None:
    old, kept = await scene.begin(), await scene.begin(file(), model="kept")
    await scene.send(old, OTHER, end=10)
    scene.wall.now += 8 * 86400
    new = await scene.begin(file(OTHER, "1/model.onnx"), model="new")
    (scene.folder / "records" / "broken.json").write_text("{")
    (scene.folder / "staging" / "orphan").write_text("x")
    scene.restart()
    assert await scene.uploads.sweep({kept.id}) == 3
    assert {one.id for one in scene.uploads.all()} == {kept.id, new.id}
    assert await scene.uploads.offset(new.id, digest(OTHER)) == 10
    assert len(names_in(scene.folder)) == 3


async def test_a_server_that_stops_in_the_middle_of_pieces_loses_none(scene: Scene) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for number in range(0, len(DATA), 10):
            yield DATA[number : number + 10]
            await asyncio.sleep(0)

    upload = await scene.begin(file())
    staged = scene.folder / "staging" / f"{digest(DATA)}-{len(DATA)}"
    task = asyncio.create_task(scene.uploads.append(upload.id, digest(DATA), 0, endless()))
    await until(lambda: staged.exists() and staged.stat().st_size > 500)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    offset = await scene.uploads.offset(upload.id, digest(DATA))
    for _ in range(2):  # the last piece may have been on its way to the disk
        try:
            offset = await scene.send(upload, start=offset)
        except WrongOffset as error:
            offset = error.offset
    assert await scene.stored() == {digest(DATA): DATA}


async def test_a_source_is_another_upload_and_needs_no_version_folder(scene: Scene) -> None:
    version = await scene.begin()
    source = await scene.uploads.begin("digits", FILES, "ada", UploadKind.SOURCE)
    assert source.id != version.id
    kinds = {one.id: one.kind for one in scene.restart().all()}
    assert kinds == {version.id: UploadKind.VERSION, source.id: UploadKind.SOURCE}
    files = [file(path="saved_model.pb"), file(b"w", "variables/variables.index")]
    bare = await scene.uploads.begin("digits", files, "ada", UploadKind.SOURCE)
    assert [one.path for one in bare.files] == ["saved_model.pb", "variables/variables.index"]


# --- what is refused, before anything is written --------------------------------------------------

A = "a" * 64
HOSTILE = [
    [VersionFile("../1/model.onnx", 1, A)],
    [VersionFile("/1/model.onnx", 1, A)],
    [VersionFile("1/../../model.onnx", 1, A)],
    [VersionFile("1//model.onnx", 1, A)],
    [VersionFile("1/./model.onnx", 1, A)],
    [VersionFile("1/.hidden", 1, A)],
    [VersionFile("1/model.onnx\n", 1, A)],
    [VersionFile("1/mod\0el.onnx", 1, A)],
    [VersionFile("1\\model.onnx", 1, A)],
    [VersionFile("1/a/b/c/d", 1, A)],
    [VersionFile("1/" + "x" * 129, 1, A)],
    [VersionFile("1/model.onnx", 1, A), VersionFile("1/Model.onnx", 1, A)],
    [VersionFile("1/model.onnx", 1, A), VersionFile("1/model.onnx/x", 1, A)],
    [VersionFile("1/model.onnx", 1, A), VersionFile("1/model.onnx", 1, A)],
    [VersionFile("1/model.onnx", 1, A), VersionFile("1/other.onnx", 2, A)],
    [VersionFile("1/model.onnx", -1, A)],
    [VersionFile("1/model.onnx", 1 << 60, A)],
    [VersionFile("1/model.onnx", 1, A.upper())],
    [VersionFile("1/model.onnx", 1, "../" + "a" * 61)],
    [VersionFile("1/model.onnx", 1, A), VersionFile("2/model.onnx", 1, A)],
    [VersionFile("model.onnx", 1, A)],
    [VersionFile(f"1/{n}", 1, A) for n in range(100_000)],
    [],
]


async def test_files_and_models_that_cannot_be_are_refused(scene: Scene) -> None:
    for files in HOSTILE:
        with pytest.raises(Invalid):
            await scene.uploads.begin("digits", files, "eve")
    for model in ("../x", "", "a/b", "stats", "x" * 300):
        with pytest.raises(Invalid):
            await scene.begin(model=model)
    with pytest.raises(DigestMismatch):  # an empty file has a digest of its own
        await scene.begin(VersionFile("1/model.onnx", 0, A))
    assert names_in(scene.folder) == []


async def test_an_upload_that_is_too_large_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limits=UploadLimits(upload=2 * len(DATA)))
    await scene.begin(file(), file(path="1/copy"))
    with pytest.raises(Invalid, match="too large"):
        await scene.begin(file(), file(path="1/copy"), file(b"x", "1/x"))


async def test_the_quota_counts_what_is_to_come_and_not_what_is_stored(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limits=UploadLimits(quota=len(DATA)))
    upload = await scene.begin(file())
    await scene.begin(file(), model="the-same-blob")
    with pytest.raises(NoSpace, match="quota"):
        await scene.begin(file(OTHER), model="more")
    await scene.send(upload)
    await scene.begin(file(OTHER), model="more")
    await scene.begin(file())


async def test_there_is_an_end_to_unfinished_uploads(scene: Scene) -> None:
    for number in range(256):
        await scene.begin(file(), model=f"m{number}")
    with pytest.raises(NoSpace, match="256"):
        await scene.begin(file(), model="one-more")
    await scene.begin(file(), model="m0")
