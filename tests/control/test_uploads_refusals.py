"""Uploads that are refused before anything is written."""

import asyncio
from pathlib import Path

import pytest
from control.storage_scene import DATA, file, names_in
from control.uploads_scene import OTHER, Scene

from serve.control.uploads.uploads import UploadLimits
from serve.core.errors import DigestMismatch, Invalid, NoSpace
from serve.core.versions import VersionFile

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


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize("files", HOSTILE, ids=lambda files: ascii([f.path for f in files[:2]]))
def test_files_that_cannot_be_are_refused_before_anything_is_written(
    scene: Scene, files: list[VersionFile]
) -> None:
    with pytest.raises(Invalid):
        asyncio.run(scene.uploads.begin("digits", files, "eve"))
    assert names_in(scene.folder) == []


@pytest.mark.parametrize("model", ["../x", "", "a/b", "stats", "x" * 300])
def test_models_that_cannot_be_are_refused_before_anything_is_written(
    scene: Scene, model: str
) -> None:
    with pytest.raises(Invalid):
        asyncio.run(scene.begin(model=model))
    assert names_in(scene.folder) == []


def test_an_empty_file_with_the_digest_of_another_is_refused(scene: Scene) -> None:
    with pytest.raises(DigestMismatch):
        asyncio.run(scene.begin(VersionFile("1/model.onnx", 0, A)))
    assert names_in(scene.folder) == []


def test_an_upload_that_is_too_large_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limits=UploadLimits(upload=2 * len(DATA)))
    asyncio.run(scene.begin(file(), file(path="1/copy")))
    with pytest.raises(Invalid, match="too large"):
        asyncio.run(scene.begin(file(), file(path="1/copy"), file(b"x", "1/x")))


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
