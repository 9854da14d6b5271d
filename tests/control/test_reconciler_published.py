"""The keeper and published versions: delivered, loaded, proven, and only then called."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from builders import replica, write_model

from serve.control.versions import PublishedVersion
from serve.core.errors import TritonFailed
from serve.core.versions import VersionState

from .keeping import Scene, nothing, scene_with
from .versions_scene import split, version

ONE, TWO, RETIRED = version("m", 1), version("m", 2), version("m", 1, state=VersionState.RETIRED)
CALLED = {1: ("m", ("a",))}  # where calls go while version 1 alone is served


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Version 1 of model m is published."""
    return scene_with(tmp_path, ONE)


def test_a_version_is_loaded_warmed_and_proven_before_calls_come(scene: Scene) -> None:
    assert scene.play() == ["load m"]
    assert scene.proof.asked == ["warm 1", "verify 1"]
    assert scene.targets() == CALLED


def test_nothing_is_loaded_before_its_files_are_there(scene: Scene) -> None:
    asked = scene.play(
        lambda: scene.publish(ONE, TWO, delivered=False), nothing, lambda: scene.publish(ONE, TWO)
    )
    assert asked == ["load m", "load m"]
    assert (scene.triton.held, scene.proof.asked[2:]) == ({"m": {1, 2}}, ["warm 2", "verify 2"])


def test_versions_with_other_configurations_are_served_beside_those_of_a_plain_folder(
    tmp_path: Path,
) -> None:
    other = version("m", 3, physical="m--0badcafe", config='backend: "python"\n')
    scene = scene_with(tmp_path, other, version("m", 4, physical="m--0badcafe"))
    write_model(scene.repository, "m", 1, 2)
    assert scene.play() == ["load m", "load m--0badcafe"]
    names = {number: name for number, (name, _) in scene.targets().items()}
    assert names == {1: "m", 2: "m", 3: "m--0badcafe", 4: "m--0badcafe"}


def test_a_version_that_answers_wrongly_gets_no_calls_and_is_tried_again(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, ONE, TWO, route__m=split(v1=100))
    scene.proof.wrong = {2: "output 'y' is off"}
    scene.play(nothing)
    assert (set(scene.targets()), scene.triton.asked) == ({1}, ["load m"])
    status = scene.plane.models.version("m", 2)
    assert status.state == VersionState.FAILED
    assert status.reason == "version 2 returns wrong outputs: output 'y' is off"
    scene.proof.wrong = {}
    scene.plane.clock.now += 11
    scene.play(nothing)
    assert scene.triton.asked == ["load m"] * 3  # without it, and with it again
    assert set(scene.targets()) == {1, 2}


async def test_what_turns_out_wrong_later_gets_no_calls_until_it_is_right_or_loaded_anew(
    scene: Scene,
) -> None:
    await scene.round()
    await scene.keeper.found(ONE, "output 'y' is off")
    assert scene.targets() == {}
    await scene.keeper.found(ONE, "")
    assert scene.targets() == CALLED
    await scene.keeper.found(ONE, "output 'y' is off")
    await scene.round()
    assert scene.triton.asked == ["load m", "unload m", "load m"]
    assert scene.targets() == CALLED


@pytest.mark.parametrize(
    ("others", "how", "held"),
    [((), "unload m", {}), ((TWO,), "load m", {"m": {2}})],
    ids=["unload", "load"],
)
def test_a_version_that_is_retired_goes_and_the_others_of_its_name_stay(
    scene: Scene, others: tuple[PublishedVersion, ...], how: str, held: dict[str, set[int]]
) -> None:
    asked = scene.play(lambda: scene.publish(RETIRED, *others), nothing)
    assert (asked[-1], scene.triton.held) == (how, held)
    assert set(scene.targets()) == held.get("m", set())


@pytest.mark.parametrize("others", [(), (TWO,)], ids=["unload", "load"])
async def test_what_is_wanted_again_while_it_goes_gets_calls_only_once_it_is_back(
    tmp_path: Path, others: tuple[PublishedVersion, ...]
) -> None:
    """Triton still lists what it is unloading; a call that came there would be refused."""
    scene = scene_with(tmp_path, ONE, *others)
    told: list[object] = []
    change = scene.triton.unload if not others else scene.triton.load

    async def changing(*asked: Any) -> None:
        scene.publish(ONE, *others)  # it is restored
        await scene.plane.publisher.refresh()
        told.append(1 in scene.targets())
        await change(*asked)
        told.append(1 in scene.targets())

    await scene.round()
    scene.publish(RETIRED, *others)
    setattr(scene.triton, "load" if others else "unload", changing)
    await scene.round()
    setattr(scene.triton, "load" if others else "unload", change)
    await scene.round()
    assert told and not any(told)
    assert 1 in scene.targets() and 1 in scene.triton.held["m"]


async def test_what_is_wanted_again_before_it_goes_stays(scene: Scene) -> None:
    async def restored(generation: int, within: float) -> bool:
        scene.publish(ONE)
        await scene.plane.publisher.refresh()
        return True

    await scene.round()
    scene.publish(RETIRED)
    scene.plane.publisher.in_force = restored  # type: ignore[method-assign]
    await scene.round()
    assert scene.triton.asked == ["load m"]
    assert scene.targets() == CALLED


async def test_what_cannot_be_unloaded_and_is_wanted_again_gets_calls_again(scene: Scene) -> None:
    async def refused(model: str) -> None:
        scene.publish(ONE)
        raise TritonFailed("it is in use")

    await scene.round()
    scene.publish(RETIRED)
    scene.triton.unload = refused  # type: ignore[method-assign]
    await scene.round()
    assert scene.targets() == CALLED


def test_a_failed_load_leaves_what_was_loaded_and_says_why(scene: Scene) -> None:
    def second() -> None:
        scene.triton.broken["m"] = RuntimeError("no memory")
        scene.publish(ONE, TWO, route__m=split(v1=100))

    scene.play(second, nothing)
    assert scene.targets() == CALLED
    assert scene.plane.models.version("m", 2).reason == "no memory"
    assert scene.plane.models.version("m", 1).state == VersionState.READY


def test_calls_are_steered_away_during_a_load_when_another_replica_serves(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, ONE, others=("b",))
    scene.fleet.saw("b", {"m": (1,)})
    seen: list[object] = []
    load = scene.triton.load

    async def watched(model: str, config: str | None) -> None:
        seen.append(scene.targets()[1])
        await load(model, config)

    scene.triton.load = watched  # type: ignore[method-assign]
    scene.play(lambda: scene.publish(ONE, TWO, route__m=split(v1=100)))
    assert seen[-1] == ("m", ("b",))


def test_a_name_in_both_repositories_is_told(scene: Scene) -> None:
    write_model(scene.repository, "m", 1)
    scene.play()
    assert "rename the folder" in scene.plane.models.get("m").problems[0]


def test_a_version_on_its_way_is_shown_before_anything_of_the_model_is_there(
    tmp_path: Path,
) -> None:
    coming = version("m", 1, state=VersionState.UPLOADED, physical="", config="")
    scene = scene_with(tmp_path, coming)
    scene.play()
    status = scene.plane.models.get("m")
    assert ([one.state for one in status.versions], status.state) == (["uploaded"], "loading")
    assert scene.plane.publisher.snapshot.models == {}


# --- pools of one group: each of their replicas takes the models of all ---------------------------

GROUP: dict[str, Any] = {"pool__default": {"group": "g"}, "pool__other": {"group": "g"}}
OTHER: dict[str, Any] = {"model__m": {"pool": "other"}}


@pytest.fixture
def two_pools(tmp_path: Path) -> Scene:
    """Replica `a` of pool `default` is kept; `b` of pool `other` holds the model of its pool."""
    scene = Scene(tmp_path, replica("b", pool="other"))
    scene.publish(ONE, **OTHER)
    scene.fleet.saw("b", {"m": (1,)})
    return scene


def test_a_replica_loads_the_models_of_the_group_that_its_pool_joins_until_it_leaves(
    two_pools: Scene,
) -> None:
    of_pool, of_group = {1: ("m", ("b",))}, {1: ("m", ("a", "b"))}
    assert (two_pools.play(), two_pools.targets()) == ([], of_pool)
    joined = two_pools.play(lambda: two_pools.publish(ONE, **OTHER, **GROUP), nothing)
    assert (joined, two_pools.triton.held) == (["load m"], {"m": {1}})
    assert two_pools.targets() == of_group
    two_pools.publish(ONE, **OTHER)
    asyncio.run(two_pools.plane.publisher.refresh())
    assert two_pools.targets() == of_pool
    assert (two_pools.play()[-1], two_pools.triton.held) == ("unload m", {})
    assert two_pools.targets() == of_pool


def test_a_model_that_moves_within_its_group_stays_everywhere(two_pools: Scene) -> None:
    two_pools.publish(ONE, **OTHER, **GROUP)
    two_pools.play(nothing)
    two_pools.triton.asked.clear()
    assert two_pools.play(lambda: two_pools.publish(ONE, **GROUP), nothing) == []
    assert two_pools.targets() == {1: ("m", ("a", "b"))}
