"""The keeper when things go wrong, and replicas that come, hang, or belong to another pool."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from builders import replica

from serve.control.fleet import LOADING
from serve.control.reconciliation.busy_replicas import Steering
from serve.control.reconciliation.loader import FIRST_RETRY, HUNG
from serve.core.errors import Invalid, TritonFailed, Unavailable
from serve.core.versions import VersionState

from .keeping import Scene, nothing, scene_with
from .versions_scene import split, version

RETIRED = version("m", 1, state=VersionState.RETIRED)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Version 1 of model m is published."""
    return scene_with(tmp_path, version("m", 1))


def test_what_cannot_be_tried_is_not_called_until_it_was_and_keeps_nothing_else(
    tmp_path: Path,
) -> None:
    scene = scene_with(tmp_path, version("a", 1), version("b", 1), version("c", 1))
    scene.proof.fails["a"] = Unavailable("the storage does not answer")
    scene.proof.fails["b"] = Invalid("the bytes are not what they were")  # of its contract
    assert scene.play() == ["load a", "load b", "load c"]
    assert (scene.targets("a"), scene.targets("b"), set(scene.targets("c"))) == ({}, {}, {1})
    assert "cannot be checked" in scene.plane.models.version("a", 1).reason
    status = scene.plane.models.version("b", 1)
    assert status.state == VersionState.FAILED
    assert "its contract cannot be run" in status.reason
    scene.proof.fails.clear()
    scene.play()
    assert set(scene.targets("a")) == {1}
    assert len(scene.triton.asked) == 3


def test_what_goes_on_answering_wrongly_is_loaded_anew_ever_more_rarely(scene: Scene) -> None:
    scene.proof.wrong = {1: "output 'y' is off"}
    loads = []
    for pause in (0.0, FIRST_RETRY, FIRST_RETRY, FIRST_RETRY):
        scene.plane.clock.now += pause
        scene.play()
        loads.append(scene.triton.asked.count("load m"))
    assert loads == [1, 2, 2, 3]


def test_a_replica_whose_agent_comes_after_it_joins_with_everything(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("first", 1), version("second", 1), delivered=False)
    scene.delivery.problems = {("first", 1): "no agent", ("second", 1): "no agent"}
    joined = []

    def deliver(*names: str) -> None:
        joined.append(not scene.fleet.joining)
        scene.delivery.problems = {}
        scene.delivery.there = {(name, 1) for name in names}

    scene.play(lambda: deliver("first"), lambda: deliver("first", "second"), nothing)
    assert (joined, scene.fleet.joining) == ([True, False], set())
    assert scene.triton.asked == ["load first", "load second"]


def test_a_refused_unload_is_asked_again(scene: Scene) -> None:
    unload, refusals = scene.triton.unload, [TritonFailed("busy")]

    async def reluctant(model: str) -> None:
        if refusals:
            raise refusals.pop()
        await unload(model)

    scene.triton.unload = reluctant  # type: ignore[method-assign]
    scene.play(lambda: scene.publish(RETIRED), nothing)
    assert scene.triton.held == {}


def test_what_has_to_go_goes_first_since_it_may_make_the_room(scene: Scene) -> None:
    asked = scene.play(lambda: scene.publish(RETIRED, version("a", 1)))
    assert asked == ["load m", "unload m", "load a"]


def test_what_has_to_go_goes_although_the_replica_may_not_load(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1), version("old", 1))
    scene.play()
    scene.steer(Steering(scene.fleet, scene.plane.publisher, min_available=0.5, refuse=True))
    gone = version("old", 1, state=VersionState.RETIRED)
    scene.play(lambda: scene.publish(version("m", 1), version("m", 2), gone))
    assert scene.triton.held == {"m": {1}}
    assert "cannot be taken out of rotation" in scene.plane.models.version("m", 2).reason
    scene.play(lambda: scene.publish(version("m", 1)))
    assert scene.fleet.waiting == {}


async def hanging(scene: Scene) -> asyncio.Task[None]:
    """Replica a loads, and hangs."""
    begun = asyncio.Event()

    async def hang(model: str, config: str | None) -> None:
        begun.set()
        await asyncio.Event().wait()

    scene.triton.load = hang  # type: ignore[method-assign]
    await scene.keeper.observe()
    keeping = asyncio.create_task(scene.keeper.reconcile())
    await begun.wait()
    return keeping


async def test_a_load_on_a_replica_that_hangs_keeps_nobody_waiting(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1), others=("b",))
    keeping = await hanging(scene)
    scene.triton.is_up = False
    await scene.keeper.observe()
    scene.plane.clock.now += HUNG - 1
    await scene.keeper.observe()
    assert scene.fleet.steered == {"a"}
    scene.plane.clock.now += 2
    await scene.keeper.observe()
    await keeping
    assert scene.fleet.steered == set()


async def test_nobody_waits_for_a_load_of_what_was_removed_meanwhile(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1), others=("b",))
    keeping = await hanging(scene)
    await scene.keeper.observe()
    assert scene.fleet.steered == {"a"}
    scene.publish(RETIRED)
    await scene.plane.inventory.scan()
    await scene.keeper.observe()
    await keeping
    assert (scene.fleet.steered, scene.fleet.failures) == (set(), {})


def test_what_triton_says_that_it_is_loading_is_not_asked_for_again(tmp_path: Path) -> None:
    scene = scene_with(tmp_path, version("m", 1), version("n", 1))
    scene.triton.loading = {"m"}
    assert scene.play() == ["load n"]
    assert scene.play(scene.triton.loading.clear) == ["load n", "load m"]


def test_what_triton_has_loaded_after_all_is_proven_like_everything_else(scene: Scene) -> None:
    load = scene.triton.load

    async def slow(model: str, config: str | None) -> None:
        await load(model, config)
        scene.triton.held.clear()
        raise TimeoutError

    scene.triton.load = slow  # type: ignore[method-assign]

    def ends() -> None:
        scene.triton.held = {"m": {1}}
        scene.proof.wrong = {1: "output 'y' is off"}

    scene.play()
    assert "it is still loading" in scene.plane.models.version("m", 1).reason
    scene.play(ends)
    assert scene.targets() == {}
    scene.proof.wrong = {}


def test_files_of_what_was_refused_and_is_not_wanted_any_more_are_let_go(scene: Scene) -> None:
    scene.triton.broken["m"] = TritonFailed("no memory")
    scene.play()
    assert scene.fleet.barred.because_of(LOADING) == {("m", 1)}
    scene.play(lambda: scene.publish(RETIRED))
    assert scene.fleet.barred.because_of(LOADING) == frozenset()


@pytest.fixture
def late(tmp_path: Path) -> Scene:
    """Replica `b` serves versions 1 and 2, replica `a` has just started."""
    both = version("m", 1), version("m", 2)
    scene = scene_with(tmp_path, *both, others=("b",), route__m=split(v1=100))
    scene.fleet.saw("b", {"m": (1, 2)})
    return scene


def test_a_replica_that_joins_gets_no_calls_while_files_are_on_their_way(late: Scene) -> None:
    late.delivery.there = {("m", 1)}
    late.play()
    assert (late.triton.held, late.targets()[1]) == ({"m": {1}}, ("m", ("b",)))
    late.delivery.there.add(("m", 2))
    late.play()
    assert [one for _, one in late.targets().values()] == [("a", "b")] * 2


def test_a_replica_joins_without_what_cannot_come_and_the_model_says_what_that_is(
    late: Scene,
) -> None:
    late.delivery.there = {("m", 1)}
    late.delivery.problems = {("m", 2): "the disk is full"}
    late.tell_problems()
    late.play()
    assert late.targets() == {1: ("m", ("a", "b")), 2: ("m", ("b",))}
    late.fleet.saw("b", {"m": (1,)})
    asyncio.run(late.plane.publisher.refresh())
    assert late.plane.models.version("m", 2).reason == "the disk is full"
    assert "version 2: the disk is full" in late.plane.models.get("m").problems


def test_a_replica_that_was_restarted_faster_than_it_is_looked_at_joins_anew(late: Scene) -> None:
    late.play()
    seen = []
    load = late.triton.load

    async def watched(model: str, config: str | None) -> None:
        await load(model, config)
        await late.keeper.observe()
        seen.append([one for _, one in late.targets().values()])

    late.triton.load = watched  # type: ignore[method-assign]
    late.play(late.triton.held.clear)
    assert seen == [[("b",), ("b",)]]
    assert [one for _, one in late.targets().values()] == [("a", "b")] * 2


@pytest.mark.parametrize("name", ["m", "m--0badcafe"])
def test_a_model_that_moves_to_another_pool_is_called_where_it_was_until_it_is_there(
    tmp_path: Path, name: str
) -> None:
    one = version("m", 1, physical=name)
    scene = Scene(tmp_path, replica("b", pool="other"))
    scene.publish(one)
    scene.fleet.saw("b", {})
    scene.play()
    assert scene.targets() == {1: (name, ("a",))}
    scene.play(lambda: scene.publish(one, model__m={"pool": "other"}), nothing)
    assert (scene.targets(), scene.triton.held) == ({1: (name, ("a",))}, {name: {1}})
    scene.fleet.saw("b", {name: (1,)})
    asyncio.run(scene.plane.publisher.refresh())
    scene.play(nothing)
    assert (scene.targets(), scene.triton.held) == ({1: (name, ("b",))}, {})


def test_nothing_is_unloaded_when_the_other_pool_loses_it_at_the_last_moment(
    tmp_path: Path,
) -> None:
    one = version("m", 1)
    scene = Scene(tmp_path, replica("b", pool="other"))
    scene.publish(one)
    scene.fleet.saw("b", {"m": (1,)})
    scene.play()
    scene.publish(one, model__m={"pool": "other"})
    in_force = scene.plane.publisher.in_force

    async def meanwhile(generation: int, within: float) -> bool:
        scene.fleet.saw("b", {})
        await scene.plane.publisher.refresh()
        return await in_force(generation, within)

    scene.plane.publisher.in_force = meanwhile  # type: ignore[method-assign]
    with contextlib.suppress(Unavailable):
        scene.play()
    assert scene.triton.held == {"m": {1}}


def test_a_model_that_is_to_be_loaded_anew_is_not_settled_while_its_files_are_on_their_way(
    scene: Scene,
) -> None:
    scene.delivery.there.clear()
    scene.play(lambda: scene.keeper.load_again("m"), nothing)
    assert not scene.keeper.is_settled("m")
    scene.delivery.problems = {("m", 1): "the disk is full"}
    scene.play()
    assert (scene.keeper.is_settled("m"), scene.keeper.problem("m")) == (True, "the disk is full")
    scene.delivery.problems.clear()
    scene.delivery.there = {("m", 1)}
    scene.play(lambda: scene.keeper.load_again("m"))
    assert (scene.keeper.is_settled("m"), scene.keeper.problem("m")) == (True, "")
