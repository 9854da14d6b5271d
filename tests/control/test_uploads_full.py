"""Uploads on a disk that is full: nothing that was there is lost, and they go on later."""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from control.storage_scene import DATA, FullDisk, digest, file, names_in, pieces

from serve.control.artifacts.folder import FolderObjects
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.upload import Upload
from serve.control.uploads.uploads import Uploads
from serve.core.errors import NoSpace

PIECES = tuple(DATA[n : n + 1000] for n in range(0, len(DATA), 1000))
STAGED = f"staging/{digest(DATA)}-{len(DATA)}"


async def sent(uploads: Uploads, upload: Upload) -> int:
    """Go on with the one blob of an upload."""
    start = await uploads.offset(upload.id, digest(DATA))
    return await uploads.append(upload.id, digest(DATA), start, pieces(DATA[start:]))


async def test_a_piece_that_found_no_space_is_cut_off_and_the_blob_goes_on_later(
    tmp_path: Path,
) -> None:
    disk = FullDisk()
    uploads = Uploads(tmp_path / "u", ArtifactStorage.of(str(tmp_path / "s")), disk=disk)
    upload = await uploads.begin("digits", [file()], "ada")
    disk.left = 3500
    with pytest.raises(NoSpace):
        await uploads.append(upload.id, digest(DATA), 0, pieces(*PIECES))
    assert await uploads.offset(upload.id, digest(DATA)) == 3000
    assert (tmp_path / "u" / STAGED).read_bytes() == DATA[:3000]
    with pytest.raises(NoSpace):
        await sent(uploads, upload)
    disk.empty()
    assert await sent(uploads, upload) == len(DATA)


async def test_a_first_piece_that_found_no_space_leaves_no_file(tmp_path: Path) -> None:
    disk = FullDisk()
    uploads = Uploads(tmp_path / "u", ArtifactStorage.of(str(tmp_path / "s")), disk=disk)
    upload = await uploads.begin("digits", [file()], "ada")
    disk.left = 10
    with pytest.raises(NoSpace):
        await uploads.append(upload.id, digest(DATA), 0, pieces(*PIECES))
    assert STAGED not in names_in(tmp_path / "u")
    disk.empty()
    assert await sent(uploads, upload) == len(DATA)


async def test_a_blob_that_cannot_be_brought_to_the_disk_stays_staged(tmp_path: Path) -> None:
    disk = FullDisk()
    uploads = Uploads(tmp_path / "u", ArtifactStorage.of(str(tmp_path / "s")), disk=disk)
    upload = await uploads.begin("digits", [file()], "ada")
    disk.full = {"sync"}
    for _ in range(2):
        with pytest.raises(NoSpace):
            await sent(uploads, upload)
        disk.left = 0  # nothing is written again
    with pytest.raises(NoSpace):
        await uploads.missing(upload.id)
    disk.empty()
    assert await uploads.missing(upload.id) == ()


@pytest.mark.parametrize("call", ["rename", "sync"])
async def test_a_blob_for_which_the_storage_has_no_space_stays_staged(
    tmp_path: Path, call: str
) -> None:
    disk = FullDisk(call)
    storage = ArtifactStorage(FolderObjects(tmp_path / "s", disk=disk))
    uploads = Uploads(tmp_path / "u", storage)
    upload = await uploads.begin("digits", [file()], "ada")
    with pytest.raises(NoSpace):
        await sent(uploads, upload)
    uploads = Uploads(tmp_path / "u", storage)
    with pytest.raises(NoSpace):
        await uploads.require_whole(upload.id)
    disk.empty()
    assert await uploads.require_whole(upload.id) == upload
    assert await storage.read(digest(DATA), most=len(DATA)) == DATA


@pytest.mark.parametrize("disk", [FullDisk("rename"), FullDisk("sync"), FullDisk(left=20)])
def test_an_upload_that_cannot_be_recorded_has_not_begun(tmp_path: Path, disk: FullDisk) -> None:
    uploads = Uploads(tmp_path / "u", ArtifactStorage.of(str(tmp_path / "s")), disk=disk)
    with pytest.raises(NoSpace):
        asyncio.run(uploads.begin("digits", [file()], "ada"))
    assert uploads.all() == () and names_in(tmp_path / "u") == []


_CHILD = """
import asyncio, sys
from pathlib import Path
from control.storage_scene import DATA, digest, file
from control.test_uploads_full import sent
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
