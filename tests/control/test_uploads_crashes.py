"""Uploads whose server is killed: at every failpoint, and anywhere at all."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from control.crashing import upload
from control.storage_scene import DATA, digest, file, listed, names_in
from forking import Forked

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.uploads import Uploads
from serve.processes.failpoints import POINTS, STATUS


def server(folder: Path, source: Path, data: bytes, failpoint: str = "") -> Forked:
    """A process that takes the upload, from where the last one ended."""
    return Forked(upload, folder, source, digest(data), failpoint)


def said(process: Forked) -> list[object]:
    """All that it says until it ends."""
    heard = []
    with contextlib.suppress(EOFError):
        while True:
            heard.append(process.hear())
    return heard


def assert_whole(folder: Path, data: bytes) -> None:
    """The blob is in the storage, and nothing else is anywhere; the record can be forgotten."""
    storage = ArtifactStorage.of(str(folder / "storage"))
    uploads = Uploads(folder / "uploads", storage)
    [upload] = uploads.all()
    asyncio.run(uploads.require_whole(upload.id))
    asyncio.run(uploads.forget(upload.id))
    asyncio.run(uploads.sweep())
    [(sha256, size, _)] = asyncio.run(listed(storage.blobs()))
    assert asyncio.run(storage.read(sha256, most=size)) == data
    assert names_in(folder / "uploads") == []
    assert len(names_in(folder / "storage")) == 1


@pytest.mark.parametrize("point", [one for one in POINTS if one.startswith(("upload.b", "blob."))])
def test_after_a_crash_the_upload_goes_on_with_what_it_had(tmp_path: Path, point: str) -> None:
    source = tmp_path / "source"
    source.write_bytes(DATA * 20)
    with server(tmp_path, source, DATA * 20, point) as crashed:
        assert crashed.wait() == STATUS
    with server(tmp_path, source, DATA * 20) as resumed:
        heard = said(resumed)
        assert resumed.wait() == 0
    expected = {"upload.begun": [0, "whole"], "blob.first": [65536, "whole"]}
    assert heard == expected.get(point, ["whole"])
    assert_whole(tmp_path, DATA * 20)


def test_a_server_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    data, source, draw = (
        random.Random(1).randbytes(30_000_000),
        tmp_path / "source",
        random.Random(2),
    )
    source.write_bytes(data)
    staged = tmp_path / "uploads" / "staging" / f"{digest(data)}-{len(data)}"
    offsets = []
    for _ in range(4):
        with server(tmp_path, source, data) as process:
            offsets.append(process.hear())
            aim = offsets[-1] + draw.randrange(1_000_000, 6_000_000)
            while not staged.exists() or staged.stat().st_size < aim:
                assert process.is_running
        assert staged.read_bytes() == data[: staged.stat().st_size]
    assert offsets == sorted(set(offsets))
    with server(tmp_path, source, data) as last:
        assert said(last)[-1] == "whole"
    assert_whole(tmp_path, data)


def test_a_file_that_was_tampered_with_begins_anew(tmp_path: Path) -> None:
    staging = tmp_path / "uploads" / "staging" / f"{digest(DATA)}-{len(DATA)}"
    staging.parent.mkdir(parents=True)
    for left in (b"x" * len(DATA), b"x" * (len(DATA) + 1), b""):
        staging.write_bytes(left)
        uploads = Uploads(tmp_path / "uploads", ArtifactStorage.of(str(tmp_path / "storage")))
        upload = asyncio.run(uploads.begin("digits", [file()], "ada"))
        assert asyncio.run(uploads.offset(upload.id, digest(DATA))) == 0


def test_a_link_in_the_staging_folder_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(DATA[:100])
    source = tmp_path / "source"
    source.write_bytes(DATA)
    staging = tmp_path / "uploads" / "staging" / f"{digest(DATA)}-{len(DATA)}"
    staging.parent.mkdir(parents=True)
    staging.symlink_to(victim)
    with server(tmp_path, source, DATA) as process:
        assert said(process) == [0, "whole"]
    assert victim.read_bytes() == DATA[:100]
