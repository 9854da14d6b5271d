"""Uploads whose server is killed: at every failpoint, and anywhere at all."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from control.storage_scene import DATA, digest, file, listed, names_in

from serve.control.artifacts.storage import Storage
from serve.control.uploading.uploads import Uploads
from serve.processes.failpoints import POINTS, STATUS, VARIABLE

TESTS = Path(__file__).parents[1]
_CHILD = """
import asyncio, sys
from pathlib import Path
from control.storage_scene import pieces
from serve.control.artifacts.storage import Storage
from serve.control.uploading.uploads import Uploads
from serve.core.versions import File

async def main(folder, source, sha256):
    data, size = source.open("rb"), source.stat().st_size
    uploads = Uploads(folder / "uploads", Storage.of(str(folder / "storage")))
    upload = await uploads.begin("digits", [File("1/model.onnx", size, sha256)], "ada")
    for missing in await uploads.missing(upload.id):
        print("from", missing.offset, flush=True)
        data.seek(missing.offset)
        parts = iter(lambda: data.read(65536), b"")
        await uploads.append(upload.id, sha256, missing.offset, pieces(*parts))
    await uploads.require_whole(upload.id)
    print("whole", flush=True)

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
"""


def server(folder: Path, source: Path, sha256: str, failpoint: str = "") -> subprocess.Popen[str]:
    """A process that takes the upload, from where the last one ended."""
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(folder), str(source), sha256],
        cwd=TESTS,
        env={**os.environ, VARIABLE: failpoint},
        stdout=subprocess.PIPE,
        text=True,
    )


def assert_whole(folder: Path, data: bytes) -> None:
    """The blob is in the storage, and nothing else is anywhere; the record can be forgotten."""
    storage = Storage.of(str(folder / "storage"))
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
    crashed = server(tmp_path, source, digest(DATA * 20), point)
    crashed.communicate(timeout=60)
    assert crashed.returncode == STATUS
    resumed = server(tmp_path, source, digest(DATA * 20))
    said = resumed.communicate(timeout=60)[0].split("\n")
    assert resumed.returncode == 0
    expected = {"upload.begun": ["from 0", "whole", ""], "blob.first": ["from 65536", "whole", ""]}
    assert said == expected.get(point, ["whole", ""])
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
        process = server(tmp_path, source, digest(data))
        assert process.stdout is not None
        offsets.append(int(process.stdout.readline().split()[1]))
        aim = offsets[-1] + draw.randrange(1_000_000, 6_000_000)
        while not staged.exists() or staged.stat().st_size < aim:
            assert process.poll() is None
        process.kill()
        process.wait()
        process.stdout.close()
        assert staged.read_bytes() == data[: staged.stat().st_size]
    assert offsets == sorted(set(offsets))
    last = server(tmp_path, source, digest(data))
    assert last.communicate(timeout=60)[0].endswith("whole\n")
    assert_whole(tmp_path, data)


def test_a_file_that_was_tampered_with_begins_anew(tmp_path: Path) -> None:
    staging = tmp_path / "uploads" / "staging" / f"{digest(DATA)}-{len(DATA)}"
    staging.parent.mkdir(parents=True)
    for left in (b"x" * len(DATA), b"x" * (len(DATA) + 1), b""):
        staging.write_bytes(left)
        uploads = Uploads(tmp_path / "uploads", Storage.of(str(tmp_path / "storage")))
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
    process = server(tmp_path, source, digest(DATA))
    assert process.communicate(timeout=60)[0] == "from 0\nwhole\n"
    assert victim.read_bytes() == DATA[:100]
