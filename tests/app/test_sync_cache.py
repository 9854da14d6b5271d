"""The agent's cache: what it links, what it fetches, what it lets go."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from loops import in_loop

from serve.app.sync_cache import Cache
from serve.core.errors import DigestMismatch
from serve.core.versions import VersionFile


def file_of(data: bytes) -> VersionFile:
    return VersionFile("1/model.onnx", len(data), hashlib.sha256(data).hexdigest())


class Origin:
    """Gives what is scripted, one answer per fetch; then what was last."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def fetch(self, file: VersionFile, target: Path) -> None:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        await asyncio.to_thread(target.write_bytes, answer)


class Scene:
    def __init__(self, folder: Path, origin: Origin, most: int = 0) -> None:
        self.now = 1
        self.folder = folder
        self.origin = origin
        self.cache = Cache(folder / "cache", origin, most=most, clock=lambda: self.now * 10**9)

    def fetch(self, data: bytes, name: str) -> Path:
        target = self.folder / name
        asyncio.run(self.cache.fetch(file_of(data), target))
        return target

    def blobs(self) -> set[bytes]:
        return {blob.read_bytes() for blob in (self.folder / "cache/blobs").iterdir()}


def test_a_blob_is_fetched_once_and_linked_for_the_first_that_needs_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Origin(b"abc"))
    first, second = scene.fetch(b"abc", "first"), scene.fetch(b"abc", "second")
    assert first.samefile(tmp_path / "cache/blobs" / file_of(b"abc").sha256)
    assert first.read_bytes() == second.read_bytes() == b"abc"
    assert {path.stat().st_mode & 0o777 for path in (first, second)} == {0o444}
    assert scene.origin.asked == 1


def test_a_file_that_is_in_use_does_not_look_younger_when_others_need_the_same(
    tmp_path: Path,
) -> None:
    """Triton looks at the times of modification and of change."""
    scene = Scene(tmp_path, Origin(b"abc"))
    served = scene.fetch(b"abc", "first")
    before = served.stat()
    scene.now = 1000
    scene.fetch(b"abc", "second").unlink()
    after = served.stat()
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)


def test_a_blob_without_users_is_linked_again_and_counts_as_used(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Origin(b"abc"))
    scene.fetch(b"abc", "first").unlink()
    scene.now = 1000
    again = scene.fetch(b"abc", "again").stat()
    assert (again.st_nlink, again.st_atime_ns, scene.origin.asked) == (2, 1000 * 10**9, 1)


def test_wrong_bytes_are_fetched_once_more_and_then_told_and_not_kept(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Origin(b"abX", b"abc", b"abX"))
    assert scene.fetch(b"abc", "first").read_bytes() == b"abc"
    assert scene.origin.asked == 2
    with pytest.raises(DigestMismatch):
        scene.fetch(b"abcd", "second")
    assert scene.origin.asked == 4
    assert not (tmp_path / "second").exists() and scene.blobs() == {b"abc"}


def test_a_blob_that_was_damaged_on_this_disk_is_fetched_anew(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Origin(b"abc"))
    scene.fetch(b"abc", "first").unlink()
    (blob,) = (tmp_path / "cache/blobs").iterdir()
    blob.chmod(0o644)
    blob.write_bytes(b"abX")
    assert scene.fetch(b"abc", "second").read_bytes() == b"abc"
    assert scene.origin.asked == 2


@in_loop
async def test_blobs_that_are_fetched_at_the_same_time_come_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Origin(b"abc"))

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(scene.cache.fetch(file_of(b"abc"), tmp_path / f"link-{number}"))
    assert scene.origin.asked == 1


def test_the_longest_unused_blobs_go_and_those_in_use_stay(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Origin(b"aaa", b"bbb", b"ccc", b"ddd"), most=6)
    links = {}
    for data in (b"aaa", b"bbb", b"ccc", b"ddd"):
        scene.now += 1
        links[data] = scene.fetch(data, data.decode())
    scene.now += 1
    scene.fetch(b"aaa", "again").unlink()
    for data in (b"aaa", b"bbb", b"ccc"):
        links[data].unlink()
    scene.cache.trim(())
    assert scene.blobs() == {b"aaa", b"ccc", b"ddd"}
    scene.cache.trim([file_of(b"aaa").sha256])
    assert scene.blobs() == {b"aaa", b"ccc", b"ddd"}


def test_parts_of_blobs_that_nobody_wants_any_more_go(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Origin(b""))
    wanted, unwanted = file_of(b"abc").sha256, file_of(b"xyz").sha256
    for sha256 in (wanted, unwanted):
        (tmp_path / "cache/parts" / sha256).write_bytes(b"a")
    scene.cache.trim([wanted])
    assert [part.name for part in (tmp_path / "cache/parts").iterdir()] == [wanted]
