"""Uploads that are interrupted: by a full disk, a crash, or a bucket that is away."""

import asyncio
import contextlib
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from control.crashing import upload
from control.storage_scene import (
    DATA,
    FullDisk,
    digest,
    file,
    listed,
    names_in,
    pieces,
    sent,
    written,
)
from control.uploads_scene import Scene
from forking import Forked
from object_store import ObjectStore

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.uploads import Uploads
from serve.core.errors import NoSpace, Unavailable
from serve.processes.failpoints import POINTS, STATUS

PIECES = tuple(DATA[n : n + 1000] for n in range(0, len(DATA), 1000))
STAGED = f"staging/{digest(DATA)}-{len(DATA)}"


# --- by a full disk: nothing that was there is lost, and they go on later -------------------------


@pytest.mark.parametrize(("left", "kept"), [(3500, 3000), (10, 0)])
async def test_a_piece_that_found_no_space_is_cut_off_and_the_blob_goes_on_later(
    tmp_path: Path, left: int, kept: int
) -> None:
    disk = FullDisk()
    scene = Scene(tmp_path, disk=disk)
    upload = await scene.begin(file())
    disk.left = left
    with pytest.raises(NoSpace):
        await scene.uploads.append(upload.id, digest(DATA), 0, pieces(*PIECES))
    assert await scene.uploads.offset(upload.id, digest(DATA)) == kept
    assert (STAGED in names_in(scene.folder)) is (kept > 0)
    assert not kept or (scene.folder / STAGED).read_bytes() == DATA[:kept]
    with pytest.raises(NoSpace):
        await sent(scene.uploads, upload)
    disk.empty()
    assert await sent(scene.uploads, upload) == len(DATA)


async def test_a_blob_that_cannot_be_brought_to_the_disk_stays_staged(tmp_path: Path) -> None:
    disk = FullDisk()
    scene = Scene(tmp_path, disk=disk)
    upload = await scene.begin(file())
    disk.full = {"sync"}
    for _ in range(2):
        with pytest.raises(NoSpace):
            await sent(scene.uploads, upload)
        disk.left = 0  # nothing is written again
    with pytest.raises(NoSpace):
        await scene.uploads.missing(upload.id)
    disk.empty()
    assert await scene.uploads.missing(upload.id) == ()


@pytest.mark.parametrize("call", ["rename", "sync"])
async def test_a_blob_for_which_the_storage_has_no_space_stays_staged(
    tmp_path: Path, call: str
) -> None:
    disk = FullDisk(call)
    scene = Scene(tmp_path, storage_disk=disk)
    upload = await scene.begin(file())
    with pytest.raises(NoSpace):
        await sent(scene.uploads, upload)
    scene.restart()
    with pytest.raises(NoSpace):
        await scene.uploads.require_whole(upload.id)
    disk.empty()
    assert await scene.uploads.require_whole(upload.id) == upload
    assert await scene.stored() == {digest(DATA): DATA}


async def test_an_upload_that_cannot_be_recorded_has_not_begun(tmp_path: Path) -> None:
    for disk in (FullDisk("rename"), FullDisk("sync"), FullDisk(left=20)):
        scene = Scene(tmp_path, disk=disk)
        with pytest.raises(NoSpace):
            await scene.begin(file())
        assert scene.uploads.all() == () and names_in(scene.folder) == []


_CHILD = """
import asyncio, sys
from pathlib import Path
from control.storage_scene import DATA, digest, file, sent
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.uploads import Uploads
from serve.core.errors import NoSpace

async def main(folder):
    uploads = Uploads(folder / "u", ArtifactStorage.of(str(folder / "s")))
    upload = await uploads.begin("digits", [file()], "ada")
    try:
        print(await sent(uploads, upload))
    except NoSpace as error:
        print(error.code, await uploads.offset(upload.id, digest(DATA)))

asyncio.run(main(Path(sys.argv[1])))
"""


def test_the_kernels_own_refusal_in_the_middle_of_a_piece_is_told_as_no_space(
    tmp_path: Path,
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    # without bytecode, which would be cut short and fail whoever imports it next
    command = [sys.executable, "-B", "-c", _CHILD, str(tmp_path)]
    tests = str(Path(__file__).parents[1])
    said = subprocess.run(
        command, cwd=tests, preexec_fn=limit, capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "no_space 0\n", said.stderr
    again = subprocess.run(command, cwd=tests, capture_output=True, text=True, timeout=60)
    assert again.stdout == f"{len(DATA)}\n", again.stderr


# --- by a crash: at every failpoint, and anywhere at all ------------------------------------------


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
    source = written(tmp_path / "source", DATA * 20)
    with server(tmp_path, source, DATA * 20, point) as crashed:
        assert crashed.wait() == STATUS
    with server(tmp_path, source, DATA * 20) as resumed:
        heard = said(resumed)
        assert resumed.wait() == 0
    expected = {"upload.begun": [0, "whole"], "blob.first": [65536, "whole"]}
    assert heard == expected.get(point, ["whole"])
    assert_whole(tmp_path, DATA * 20)


def test_a_server_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    data, draw = random.Random(1).randbytes(30_000_000), random.Random(2)
    source = written(tmp_path / "source", data)
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
    victim = written(tmp_path / "victim", DATA[:100])
    source = written(tmp_path / "source")
    staging = tmp_path / "uploads" / "staging" / f"{digest(DATA)}-{len(DATA)}"
    staging.parent.mkdir(parents=True)
    staging.symlink_to(victim)
    with server(tmp_path, source, DATA) as process:
        assert said(process) == [0, "whole"]
    assert victim.read_bytes() == DATA[:100]


# --- by a bucket of a real S3 server that is away -------------------------------------------------

LARGE = DATA * 2000  # 20 MB: several parts


def test_a_blob_goes_into_the_bucket_and_waits_while_its_server_is_away(
    s3: ObjectStore, tmp_path: Path
) -> None:
    async def sent(uploads: Uploads, identity: str) -> int:
        parts = pieces(*(LARGE[n : n + 65536] for n in range(0, len(LARGE), 65536)))
        return await uploads.append(identity, digest(LARGE), 0, parts)

    url = s3.bucket()
    away = ArtifactStorage.of(url, **(s3.config | {"endpoint": "http://127.0.0.1:9"}))
    uploads = Uploads(tmp_path, ArtifactStorage.of(url, **s3.config))
    upload = asyncio.run(uploads.begin("digits", [file(LARGE)], "ada"))
    staging = tmp_path / "staging" / f"{digest(LARGE)}-{len(LARGE)}"
    staging.write_bytes(LARGE)
    with pytest.raises(Unavailable):
        asyncio.run(Uploads(tmp_path, away).require_whole(upload.id))
    assert staging.read_bytes() == LARGE
    staging.unlink()
    assert asyncio.run(sent(uploads, upload.id)) == len(LARGE)
    assert names_in(tmp_path / "staging") == []
    storage = ArtifactStorage.of(url, **s3.config)
    [(sha256, size, _)] = asyncio.run(listed(storage.blobs()))
    assert asyncio.run(storage.read(sha256, most=size)) == LARGE
