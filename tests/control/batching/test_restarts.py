"""A control plane that starts anew: it asks what is applied, and goes on with what is watched."""

from pathlib import Path

import pytest
from control.batching.changing_scene import ADA, CONFIG, Scene
from control.versions_scene import version

from serve.control.batching.reconfiguration import ChangeOutcome, ChangeRequest
from serve.control.revision import CONFIGURATION
from serve.control.storage.store import StoreEdit

GROUP = "0" * 64


def first(folder: Path, size: int = 16) -> Scene:
    """A control plane that has changed a configuration, and ended."""
    scene = Scene(folder, version("m", 1, config=CONFIG))
    assert scene.play(scene.sized(size)) == [None]
    scene.plane.store.close()
    return scene


def anew(folder: Path, old: Scene) -> Scene:
    """The next one, on the same Tritons."""
    return Scene(folder, tritons=old.tritons)


def written(scene: Scene, fields: dict[str, object], **more: object) -> StoreEdit:
    return StoreEdit(CONFIGURATION, "m", {"fields": fields, "group": GROUP, **more}, "eve")


async def settled(scene: Scene) -> None:
    """Until every replica is as it should be."""
    while not all(keeper.is_as_wanted("m") for keeper in scene.keepers):
        await scene.looked()


@pytest.mark.parametrize(("fields", "loaded"), [({"max_batch_size": 16}, []), ({}, [8])])
def test_what_is_applied_is_not_loaded_anew_and_what_is_not_is(
    tmp_path: Path, fields: dict[str, object], loaded: list[int]
) -> None:
    """The second was written while nobody was there to apply it."""
    old = first(tmp_path)
    scene = anew(tmp_path, old)
    scene.delivery.there = {("m", 1)}
    scene.before = lambda: scene.plane.store.apply(written(scene, fields))
    scene.play(lambda: settled(scene))
    assert scene.sizes == {"a": [8, 16, *loaded], "b": [8, 16, *loaded]}


def test_a_change_whose_watch_is_not_over_is_watched_on_and_taken_back(tmp_path: Path) -> None:
    old = first(tmp_path)
    scene = anew(tmp_path, old)
    scene.delivery.there = {("m", 1)}
    watch = {"until": scene.wall.at + 60, "calls": 1000, "slow": 0, "errors": 0}
    scene.before = lambda: scene.plane.store.apply(
        written(scene, {"max_batch_size": 32}, watch=watch)
    )
    scene.gateway.failed = 50.0

    async def outcome() -> ChangeOutcome | None:
        change = None
        while change is None:
            change = (await scene.configuring.show("m", 1)).change
            await scene.looked()
        await change.ended.wait()
        return change.outcome

    assert scene.play(outcome) == [ChangeOutcome.TAKEN_BACK]
    assert scene.sizes == {"a": [8, 16, 32, 16], "b": [8, 16, 32, 16]}


def test_a_replica_that_comes_back_with_what_is_on_its_disk_is_asked_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, version("m", 1, config=CONFIG))
    triton = scene.tritons["a"]

    async def away() -> None:
        triton.is_up = False
        while scene.plane.fleet.observations["a"].is_up:
            await scene.looked()
        triton.running["m"] = '{"backend": "onnxruntime", "max_batch_size": 8}'
        triton.is_up = True
        while not scene.plane.fleet.observations["a"].is_up:
            await scene.looked()
        await settled(scene)

    scene.play(
        lambda: scene.configuring.set("m", 1, ChangeRequest({"max_batch_size": 16}, ADA)), away
    )
    assert scene.sizes == {"a": [8, 16, 16], "b": [8, 16]}
