"""Publishing that is killed at every step: the next process goes on from what the record says."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from builders import until
from control.crashing import publish
from control.publishing import Scene, files
from forking import status

from serve.core.versions import VersionState
from serve.processes.failpoints import POINTS, STATUS

MINE = ("commit.", "check.", "quarantine.", "manifest.", "publish.", "upload.forgotten", "label.")
UNPUBLISHED = {
    "check.passed": VersionState.UPLOADED,
    "quarantine.started": VersionState.CHECKED,
    "manifest.written": VersionState.CHECKED,
}


@pytest.mark.parametrize("point", [one for one in POINTS if one.startswith(MINE)])
async def test_after_a_crash_the_version_is_published_once_and_whole(
    tmp_path: Path, point: str
) -> None:
    assert status(publish, tmp_path, point) == STATUS
    scene = await Scene(tmp_path).begin()
    if point in UNPUBLISHED:  # before the next process goes on, nothing is half published
        assert scene.version().state is UNPUBLISHED[point]
        assert scene.plane.inventory.loadables == {} and len(scene.uploads.all()) == 1
    scene.ready.add(("m", 1))
    await scene.pipeline.round()
    await scene.pending.round()
    (version,) = scene.records.all()
    assert (version.state, version.number) == (VersionState.PUBLISHED, 1), version.reason
    manifest = await scene.storage.manifest("m", 1)
    for file in manifest.files:
        assert await scene.storage.has(file.sha256, file.size)
    assert scene.uploads.all() == () and version.labels == ()
    assert scene.set == ["ada: m:new=1"]  # again where it was set but not written down


async def test_a_process_that_starts_works_off_what_is_left_and_clears_away(tmp_path: Path) -> None:
    assert status(publish, tmp_path, "quarantine.started") == STATUS
    scene = await Scene(tmp_path).begin()
    assert any(scene.work.iterdir())  # the repository of the trial
    working = asyncio.create_task(scene.publications.run())
    await until(lambda: scene.version().is_published)
    await scene.push("m", files(b"another"))
    await until(lambda: scene.version("m", 2).is_published)
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    assert list(scene.work.iterdir()) == []
