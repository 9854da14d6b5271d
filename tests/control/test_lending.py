"""Lending: what happens on a replica that somebody measures on, and when it comes back."""

from pathlib import Path

import pytest
from builders import write_model

from serve.control.reconciliation.busy_replicas import NoSpare

from .keeping import Scene

HELD = {"m": (1, 2)}


async def begun(folder: Path, *others: str) -> Scene:
    """Replica a, and the others, hold version 2 of model m."""
    scene = Scene(folder, *others)
    write_model(scene.repository)
    await scene.plane.begin()
    await scene.round()
    for name in others:
        scene.fleet.saw(name, HELD)
    await scene.plane.publisher.refresh()
    scene.triton.asked.clear()
    return scene


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    return await begun(tmp_path, "b", "c")


def called(scene: Scene) -> tuple[str, ...]:
    return scene.plane.publisher.snapshot.models["m"].targets[1].replicas


async def test_calls_go_elsewhere_and_its_keeper_rests_until_it_is_back(scene: Scene) -> None:
    async with scene.keeper.lending.lent("m"):
        assert called(scene) == ("b", "c")
        assert scene.keeper.lending.turn.locked()
        assert scene.triton.asked == []
    assert scene.triton.asked == ["load m"]
    assert scene.keeper.lending.is_back("m")
    assert called(scene) == ("a", "b", "c")
    await scene.round()
    assert scene.triton.asked == ["load m"]


async def test_one_that_the_others_cannot_do_without_is_not_lent(tmp_path: Path) -> None:
    scene = await begun(tmp_path)
    with pytest.raises(NoSpare, match="cannot be taken out of rotation"):
        async with scene.keeper.lending.lent("m"):
            pass
    assert called(scene) == ("a",)


async def test_what_cannot_be_loaded_again_is_tried_later_as_any_load(scene: Scene) -> None:
    async with scene.keeper.lending.lent("m"):
        scene.triton.is_up = False
    assert not scene.keeper.lending.is_back("m")
    scene.triton.is_up = True
    scene.triton.asked.clear()
    await scene.round()
    assert scene.triton.asked == ["load m"]
    assert scene.keeper.lending.is_back("m")


async def test_a_control_plane_that_died_meanwhile_is_healed_by_the_next(scene: Scene) -> None:
    scene.use(scene.proof)  # the next one, which knows nothing of what is configured there
    scene.keeper.lending.reclaim("m")
    await scene.plane.publisher.refresh()
    assert called(scene) == ("b", "c")
    await scene.round()
    assert scene.triton.asked == ["load m"]
    assert called(scene) == ("a", "b", "c")


async def test_others_of_the_pool_take_their_turns_while_one_is_lent(tmp_path: Path) -> None:
    scene = await begun(tmp_path, "b", "c", "d")
    async with scene.keeper.lending.lent("m"), scene.plane.steering.away("b"):
        assert called(scene) == ("c", "d")
