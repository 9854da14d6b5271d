"""What is kept and what goes: retiring, restoring, removing, collecting garbage."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from control.publishing import ADA, Scene, files, sha256

from serve.control.decisions import LABEL, ROUTE
from serve.control.models import By
from serve.control.publication.garbage import Garbage
from serve.control.publication.publications import PublicationRequest
from serve.core.errors import (
    Conflict,
    InUse,
    PreconditionFailed,
    TrialFailed,
    UnknownModel,
    UnknownVersion,
)
from serve.core.versions import VersionFile, VersionState

HOUR = 3600.0


async def publish(scene: Scene, *contents: bytes) -> None:
    for content in contents:
        await scene.publish("m", files(content))


async def retire(scene: Scene, *numbers: int) -> None:
    for number in numbers:
        await scene.retention.retire("m", number, ADA)


async def collect(
    scene: Scene, keep: int = 0, *, grace: float = 0.0, dry_run: bool = False
) -> Sequence[Garbage]:
    """A collection long after everything was written: files bear the time of this machine."""
    scene.wall.now = 4e9
    return await scene.retention.collect(keep, grace=grace, dry_run=dry_run, by=ADA)


def names(found: Sequence[Garbage], kind: str) -> list[str]:
    return [one.name for one in found if one.kind == kind]


async def blobs(scene: Scene) -> set[str]:
    return {sha256 async for sha256, _, _ in scene.storage.blobs()}


async def manifests(scene: Scene) -> list[tuple[str, int]]:
    return sorted([one async for one in scene.storage.manifests()])


# --- retiring, restoring, removing ---------------------------------------------------------------


async def test_a_version_is_retired_and_restored_as_it_was_and_takes_no_calls_by_itself(
    scene: Scene,
) -> None:
    await publish(scene, b"one", b"two")
    before = scene.version("m", 2)
    scene.serving["m"] = 1
    retired = await scene.retention.retire("m", 2, By("bob", "it is old"))
    assert (retired.state, retired.reason) == (VersionState.RETIRED, "it is old")
    assert await scene.retention.retire("m", 2, ADA) == retired  # again is no mistake
    restored = await scene.retention.restore("m", 2, ADA)
    assert (restored.state, restored.reason) == (VersionState.PUBLISHED, "")
    assert (restored.physical, restored.config) == (before.physical, before.config)
    assert await scene.retention.restore("m", 2, ADA) == restored
    route = scene.plane.decisions.route("m")
    assert route is not None and dict(route.split.shares) == {1: 100}


async def test_nothing_that_is_referred_to_is_retired(scene: Scene) -> None:
    await publish(scene, b"one", b"two", b"three")
    await scene.records.set(ROUTE, "m", {"split": {"1": 100, "2": 0}}, ADA)
    await scene.records.set(LABEL, "m:stable", {"version": 2}, ADA)
    await scene.publish("m", files(b"three"), PublicationRequest(labels=("new",), live=True))
    for number, why in (
        (1, "used by the route"),
        (2, "used by the route, label 'stable'"),
        (3, "used by label 'new' (pending), the route (pending)"),
    ):
        with pytest.raises(InUse) as refused:
            await scene.retention.retire("m", number, ADA)
        assert refused.value.why == why
        assert scene.version("m", number).is_published


async def test_a_removed_version_leaves_its_number_and_nothing_else(scene: Scene) -> None:
    await publish(scene, b"one")
    with pytest.raises(Conflict, match="retire it first"):
        await scene.retention.remove("m", 1, ADA)
    await retire(scene, 1)
    removed = await scene.retention.remove("m", 1, ADA)
    assert removed.state is VersionState.REMOVED
    assert await scene.retention.remove("m", 1, ADA) == removed
    assert await manifests(scene) == []
    with pytest.raises(Conflict, match="its state is 'removed'"):
        await scene.retention.restore("m", 1, ADA)
    again, created = await scene.push("m", files(b"one"))
    assert (again.number, created) == (2, True)


async def test_what_never_was_or_has_changed_meanwhile_cannot_be_retired(scene: Scene) -> None:
    with pytest.raises(UnknownModel):
        await scene.retention.retire("m", 1, ADA)
    version, _ = await scene.push("m", files())
    with pytest.raises(Conflict, match="its state is 'uploaded'"):
        await scene.retention.retire("m", version.number, ADA)
    with pytest.raises(UnknownVersion):
        await scene.retention.retire("m", 2, ADA)
    await scene.pipeline.round()
    with pytest.raises(PreconditionFailed):  # another record than the one that was read
        await scene.retention.retire("m", 1, By("ada", if_match='"77"'))
    assert scene.version().is_published


# --- collecting ----------------------------------------------------------------------------------


async def test_old_retired_and_failed_versions_go_with_what_only_they_need(scene: Scene) -> None:
    await publish(scene, b"one", b"two", b"three", b"four")
    scene.quarantine.fails = TrialFailed("no")
    await publish(scene, b"five")
    await retire(scene, 1, 2)
    found = await collect(scene, keep=3)
    assert names(found, "version") == ["m version 1", "m version 2"]
    assert names(found, "manifest") == []
    gone = {sha256(data) for data in (b"one", b"two", b"five")}
    assert set(names(found, "blob")) == gone and not gone & await blobs(scene)
    assert await manifests(scene) == [("m", 3), ("m", 4)]
    states = [version.state.value for version in scene.records.of("m")]
    assert states == ["removed", "removed", "published", "published", "failed"]
    found = await collect(scene, keep=0)
    assert names(found, "version") == ["m version 5"]
    assert await collect(scene, keep=0) == ()
    assert await scene.storage.read(sha256(b"three"), most=100) == b"three"


async def test_a_dry_run_tells_the_same_and_changes_nothing(scene: Scene) -> None:
    await publish(scene, b"one", b"two")
    await retire(scene, 1)
    before = (await blobs(scene), await manifests(scene), scene.records.all())
    told = await collect(scene, dry_run=True)
    assert (await blobs(scene), await manifests(scene), scene.records.all()) == before
    assert set(told) == set(await collect(scene))


async def test_a_retired_version_that_something_refers_to_is_kept(scene: Scene) -> None:
    await publish(scene, b"one")
    await retire(scene, 1)
    await scene.records.set(LABEL, "m:old", {"version": 1}, ADA)
    assert await collect(scene) == ()


async def test_what_is_restored_meanwhile_is_not_collected(tmp_path: Path) -> None:
    scene, other = await Scene(tmp_path).begin(), Scene(tmp_path)
    await publish(scene, b"one", b"two")
    await retire(scene, 1, 2)
    await other.begin()  # it has seen version 1 retired, and hears of nothing since
    await scene.retention.restore("m", 1, ADA)
    with pytest.raises(Conflict):
        await other.retention.remove("m", 1, ADA)
    assert scene.version("m", 1).is_published
    assert await manifests(scene) == [("m", 1), ("m", 2)]
    assert names(await collect(scene), "version") == ["m version 2"]


async def test_young_blobs_and_those_of_uploads_are_kept(scene: Scene) -> None:
    size, young = await scene.storage.add_bytes(b"nothing needs it")
    assert await collect(scene, grace=4e9) == ()
    upload = await scene.uploads.begin("m", [VersionFile("1/a", size, young)], "ada")
    assert await collect(scene) == ()
    await scene.uploads.forget(upload.id)
    assert names(await collect(scene, grace=HOUR), "blob") == [young]


async def test_versions_on_their_way_keep_everything(scene: Scene) -> None:
    scene.failing.errors["put_manifest"] = OSError("not now")
    await publish(scene, b"one")
    assert scene.version().state is VersionState.CHECKED
    assert await collect(scene) == ()
    scene.failing.errors.clear()
    scene.clock.now += HOUR
    await scene.pipeline.round()
    assert scene.version().is_published, scene.version().reason


async def test_the_manifest_of_a_failed_version_is_collected(scene: Scene) -> None:
    await publish(scene, b"one")
    left = await scene.storage.manifest("m", 1)
    await retire(scene, 1)
    await scene.retention.remove("m", 1, ADA)
    await scene.storage.put_manifest(left)  # as a crash between record and manifest leaves it
    found = await collect(scene, keep=10)
    assert names(found, "manifest") == ["m version 1"]
    assert await manifests(scene) == [] and await blobs(scene) == set()


async def test_a_manifest_that_no_record_knows_is_left_alone(scene: Scene, tmp_path: Path) -> None:
    await publish(scene, b"one")
    (tmp_path / "control.sqlite").rename(tmp_path / "lost.sqlite")
    lost = await Scene(tmp_path).begin()
    assert lost.records.all() == () and await collect(lost) == ()
    assert await manifests(lost) == [("m", 1)]


async def test_nothing_is_collected_while_a_manifest_cannot_be_read(
    scene: Scene, tmp_path: Path
) -> None:
    await publish(scene, b"one", b"two")
    await scene.storage.add_bytes(b"nothing needs it")
    await scene.storage.remove_manifest("m", 1)
    (manifest,) = (tmp_path / "storage" / "manifests").rglob("*.json")
    manifest.chmod(0o600)
    manifest.write_text("{}")
    with pytest.raises(Exception, match="malformed"):
        await collect(scene)
    assert sha256(b"nothing needs it") in await blobs(scene)


async def test_collecting_and_publishing_at_once_lose_nothing(scene: Scene) -> None:
    scene.wall.now = 4e9
    for number in range(1, 6):
        content = f"content {number % 2}".encode()  # what was garbage before is pushed again
        version, _ = await scene.push("m", files(content), PublicationRequest(again=True))
        await asyncio.gather(scene.pipeline.round(), collect(scene))
        manifest = await scene.storage.manifest("m", version.number)
        for file in manifest.files:
            assert await scene.storage.has(file.sha256, file.size)
        await retire(scene, version.number)
