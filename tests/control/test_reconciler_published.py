"""The keeper and published versions: delivered, loaded, proven, and only then called."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import write_model

from serve.control.versions import PublishedVersion
from serve.core.errors import TritonFailed
from serve.core.versions import VersionState

from .keeping import Scene, nothing
from .versions_scene import decided, split, version


class Registry:
    """Sets what is published, and says that its files are there."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def publish(self, *versions: PublishedVersion, delivered: bool = True, **other: Any) -> None:
        self.scene.plane.decisions = decided(*versions, **other)
        if delivered:
            self.scene.delivery.there |= {(one.physical, one.number) for one in versions}


def scene_with(
    folder: Path, *versions: PublishedVersion, others: tuple[str, ...] = (), **other: Any
) -> Scene:
    scene = Scene(folder, *others)
    Registry(scene).publish(*versions, **other)
    return scene


def targets(scene: Scene, model: str = "m") -> dict[int, tuple[str, tuple[str, ...]]]:
    """Where calls go: the name in Triton and the replicas of each version."""
    view = scene.plane.publisher.snapshot.models.get(model)
    found = view.targets if view else {}
    return {n: (one.physical_name, one.replicas) for n, one in found.items()}


def test_a_version_is_loaded_warmed_and_proven_before_calls_come(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    assert scene.play() == ["load m"]
    assert scene.proof.asked == ["warm 1", "verify 1"]
    assert targets(scene) == {1: ("m", ("a",))}


def test_nothing_is_loaded_before_its_files_are_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    registry = Registry(scene)
    first, second = version("m", 1), version("m", 2)
    registry.publish(first)
    asked = scene.play(
        lambda: registry.publish(first, second, delivered=False),
        nothing,
        lambda: registry.publish(first, second),
    )
    assert asked == ["load m", "load m"]
    assert (scene.triton.held, scene.proof.asked[2:]) == ({"m": {1, 2}}, ["warm 2", "verify 2"])


def test_versions_with_different_configurations_are_served_side_by_side(tmp_path: Path) -> None:
    other = version("m", 2, physical="m--0badcafe", config='backend: "python"\n')
    scene = scene_with(tmp_path, version("m", 1), other, route__m=split(v1=50, v2=50))
    assert scene.play() == ["load m", "load m--0badcafe"]
    assert targets(scene) == {1: ("m", ("a",)), 2: ("m--0badcafe", ("a",))}


def test_a_published_version_stands_beside_those_of_a_plain_folder(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 3, physical="m--0badcafe"))
    write_model(scene.repository, "m", 1, 2)
    assert scene.play() == ["load m", "load m--0badcafe"]
    assert {n: name for n, (name, _) in targets(scene).items()} == {
        1: "m",
        2: "m",
        3: "m--0badcafe",
    }


def test_a_version_that_answers_wrongly_gets_no_calls_and_is_tried_again(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1), version("m", 2), route__m=split(v1=100))
    scene.proof.wrong = {2: "output 'y' is off"}
    scene.play(nothing)
    assert (set(targets(scene)), scene.triton.asked) == ({1}, ["load m"])
    status = scene.plane.models.version("m", 2)
    assert (status.state, status.reason) == (
        VersionState.FAILED,
        "version 2 returns wrong outputs: output 'y' is off",
    )
    scene.proof.wrong = {}
    scene.plane.clock.now += 11
    scene.play(nothing)
    assert scene.triton.asked == ["load m"] * 3  # without it, and with it again
    assert set(targets(scene)) == {1, 2}


async def test_what_turns_out_wrong_later_gets_no_calls_and_is_loaded_anew(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    await scene.round()
    await scene.keeper.found(version("m", 1), "output 'y' is off")
    assert targets(scene) == {}
    await scene.round()
    assert scene.triton.asked == ["load m", "unload m", "load m"]
    assert targets(scene) == {1: ("m", ("a",))}


async def test_what_is_right_again_by_itself_gets_calls_again(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    await scene.round()
    await scene.keeper.found(version("m", 1), "output 'y' is off")
    await scene.keeper.found(version("m", 1), "")
    assert targets(scene) == {1: ("m", ("a",))}


def after(tmp_path: Path, **changes: Any) -> Scene:
    """A scene in which version 1 was served, and then 2 took over and 1 is what `changes` say."""
    scene = scene_with(tmp_path, version("m", 1))
    registry = Registry(scene)
    scene.play(lambda: registry.publish(version("m", 1, **changes), version("m", 2)), nothing)
    return scene


def test_a_version_that_is_retired_is_unloaded_and_the_others_stay(tmp_path: Path) -> None:
    assert after(tmp_path, state=VersionState.RETIRED).triton.held == {"m": {2}}


def test_the_last_version_under_a_name_goes_with_an_unload(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    registry = Registry(scene)
    asked = scene.play(
        lambda: registry.publish(version("m", 1, state=VersionState.RETIRED)), nothing
    )
    assert asked == ["load m", "unload m"]
    assert targets(scene) == {}


@pytest.mark.parametrize("others", [(), (version("m", 2),)], ids=["unload", "load"])
async def test_what_is_wanted_again_while_it_goes_gets_calls_only_once_it_is_back(
    tmp_path: Path, others: tuple[PublishedVersion, ...]
) -> None:
    """Triton still lists what it is unloading; a call that came there would be refused."""
    scene = scene_with(tmp_path, version("m", 1), *others)
    registry = Registry(scene)
    told: list[object] = []
    change = scene.triton.unload if not others else scene.triton.load

    async def changing(*asked: Any) -> None:
        registry.publish(version("m", 1), *others)  # it is restored
        await scene.plane.publisher.refresh()
        told.append(1 in targets(scene))
        await change(*asked)
        told.append(1 in targets(scene))

    await scene.round()
    registry.publish(version("m", 1, state=VersionState.RETIRED), *others)
    setattr(scene.triton, "load" if others else "unload", changing)
    await scene.round()
    setattr(scene.triton, "load" if others else "unload", change)
    await scene.round()
    assert told and not any(told)
    assert 1 in targets(scene) and 1 in scene.triton.held["m"]


async def test_what_is_wanted_again_before_it_goes_stays(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    registry = Registry(scene)

    async def restored(generation: int, within: float) -> bool:
        registry.publish(version("m", 1))
        await scene.plane.publisher.refresh()
        return True

    await scene.round()
    registry.publish(version("m", 1, state=VersionState.RETIRED))
    scene.plane.publisher.in_force = restored  # type: ignore[method-assign]
    await scene.round()
    assert scene.triton.asked == ["load m"]
    assert targets(scene) == {1: ("m", ("a",))}


async def test_what_cannot_be_unloaded_and_is_wanted_again_gets_calls_again(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    registry = Registry(scene)

    async def refused(model: str) -> None:
        registry.publish(version("m", 1))
        raise TritonFailed("it is in use")

    await scene.round()
    registry.publish(version("m", 1, state=VersionState.RETIRED))
    scene.triton.unload = refused  # type: ignore[method-assign]
    await scene.round()
    assert targets(scene) == {1: ("m", ("a",))}


def test_a_failed_load_leaves_what_was_loaded_and_says_why(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    registry = Registry(scene)

    def second() -> None:
        scene.triton.broken["m"] = RuntimeError("no memory")
        registry.publish(version("m", 1), version("m", 2), route__m=split(v1=100))

    scene.play(second, nothing)
    assert targets(scene) == {1: ("m", ("a",))}
    assert scene.plane.models.version("m", 2).reason == "no memory"
    assert scene.plane.models.version("m", 1).state == VersionState.READY


def test_what_was_held_when_control_started_is_called_without_being_loaded(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    scene.triton.held = {"m": {1}}
    assert scene.play() == []
    assert targets(scene) == {1: ("m", ("a",))}


def with_another(tmp_path: Path, act: Callable[[Scene], None]) -> tuple[str, ...]:
    """Whom version 1 was called on while replica `a` loaded version 2; `b` holds version 1."""
    scene = scene_with(tmp_path, version("m", 1), others=("b",))
    scene.fleet.saw("b", {"m": (1,)})
    seen: list[tuple[str, ...]] = []
    load = scene.triton.load

    async def watched(model: str, config: str | None) -> None:
        seen.append(targets(scene).get(1, ("", ()))[1])
        await load(model, config)

    scene.triton.load = watched  # type: ignore[method-assign]
    scene.play(lambda: act(scene))
    return seen[-1]


def test_calls_are_steered_away_during_a_load_when_another_replica_serves(tmp_path: Path) -> None:
    def act(scene: Scene) -> None:
        Registry(scene).publish(version("m", 1), version("m", 2), route__m=split(v1=100))

    assert with_another(tmp_path, act) == ("b",)


def test_a_name_in_both_repositories_is_told(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1))
    write_model(scene.repository, "m", 1)
    scene.play()
    assert "rename the folder" in scene.plane.models.get("m").problems[0]


def test_a_version_on_its_way_is_shown_before_anything_of_the_model_is_there(
    tmp_path: Path,
) -> None:
    scene = scene_with(
        tmp_path, version("m", 1, state=VersionState.UPLOADED, physical="", config="")
    )
    scene.play()
    status = scene.plane.models.get("m")
    assert ([one.state for one in status.versions], status.state) == (["uploaded"], "loading")
    assert scene.plane.publisher.snapshot.models == {}
