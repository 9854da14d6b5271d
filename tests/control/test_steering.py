"""Steering: which replica may load or be measured, when, and what calls do meanwhile."""

import asyncio
from pathlib import Path

import pytest
from builders import ControlPlane, replica, until, write_model

from serve.control.reconciliation import busy_replicas
from serve.control.reconciliation.busy_replicas import NoSpare, Steering

from .keeping import Scene


async def plane(folder: Path, *holders: str, of: tuple[str, ...] = ("a", "b", "c")) -> ControlPlane:
    """Model `m`, held by the replicas named; all others are up and hold nothing."""
    made = ControlPlane(folder, replicas=[replica(name) for name in of])
    write_model(made.repository)
    held = {name: {"m": (1, 2)} if name in holders else {} for name in of}
    return await made.begin(**held)


def steering(one: ControlPlane, *, share: float = 0.5, refuse: bool = False) -> Steering:
    return Steering(one.fleet, one.publisher, min_available=share, refuse=refuse)


def called(one: ControlPlane) -> tuple[str, ...]:
    """The replicas to which calls go by now."""
    return one.publisher.snapshot.models["m"].targets[1].replicas


async def test_calls_go_elsewhere_while_a_replica_is_away_and_come_back_also_from_a_failure(
    tmp_path: Path,
) -> None:
    one = await plane(tmp_path, "a", "b", "c")
    async with steering(one).away("a"):
        assert called(one) == ("b", "c")
    assert called(one) == ("a", "b", "c")
    with pytest.raises(RuntimeError):
        async with steering(one).away("a"):
            raise RuntimeError
    assert called(one) == ("a", "b", "c")


async def test_only_one_replica_of_a_pool_is_away_at_a_time(tmp_path: Path) -> None:
    one = await plane(tmp_path, "a", "b", "c")
    steer, order = steering(one), []

    async def work(name: str, go: asyncio.Event) -> None:
        async with steer.away(name):
            order.append((name, called(one)))
            await go.wait()

    go = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work("a", go))
        tasks.create_task(work("b", go))
        await until(lambda: bool(order))
        assert len(order) == 1
        go.set()
    assert order == [("a", ("b", "c")), ("b", ("a", "c"))]


async def test_a_turn_ends_after_a_while_although_the_load_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_replicas, "TURN", 0.01)
    one = await plane(tmp_path, "a", "b", "c")
    steer = steering(one, share=0.3)
    async with steer.away("a"), steer.away("b"):
        assert called(one) == ("c",)
    async with steer.away("c"):
        assert called(one) == ("a", "b")
    assert called(one) == ("a", "b", "c")


async def test_a_replica_that_serves_nothing_waits_for_nobody_and_gets_no_calls_before_it_is_done(
    tmp_path: Path,
) -> None:
    one = await plane(tmp_path, "a", "b")
    steer = steering(one, share=0.3)
    async with steer.away("a"), steer.away("c"):
        one.fleet.saw("c", {"m": (1, 2)})
        await one.publisher.refresh()
        assert called(one) == ("b",)
    assert called(one) == ("a", "b", "c")


async def test_replicas_that_start_together_serve_what_they_have(tmp_path: Path) -> None:
    one = await plane(tmp_path, of=("a", "b"))
    steer = steering(one)
    async with steer.away("a"), steer.away("b"):
        one.fleet.saw("a", {"m": (1, 2)})
        await one.publisher.refresh()
        assert called(one) == ("a",)


async def test_a_replica_is_spared_only_while_enough_others_serve(tmp_path: Path) -> None:
    one = await plane(tmp_path)
    for holders, share, spared in (
        (("a", "b"), 0.5, False),  # one of three would go on, two are needed
        (("a", "b", "c"), 0.5, True),
        (("a", "b", "c"), 0.9, False),
        (("a", "b"), 0.0, True),  # but never the last one
        (("a",), 0.0, False),
    ):
        for name in ("a", "b", "c"):
            one.fleet.saw(name, {"m": (1, 2)} if name in holders else {})
        await one.publisher.refresh()
        assert (steering(one, share=share).lacking("a") == "") is spared, (holders, share)


async def test_a_replica_that_does_not_answer_does_not_count(tmp_path: Path) -> None:
    one = await plane(tmp_path, "a", "b", of=("a", "b"))
    one.fleet.lost("b", "refused")
    await one.publisher.refresh()
    lacking = steering(one).lacking("a")
    assert lacking == "pool 'default' would have 0 serving replicas, and needs 1"


async def test_the_only_replica_loads_while_it_serves_unless_that_is_refused(
    tmp_path: Path,
) -> None:
    one = await plane(tmp_path, "a", of=("a",))
    async with steering(one).away("a"):
        assert called(one) == ("a",)
    with pytest.raises(NoSpare, match="cannot be taken out of rotation") as caught:
        async with steering(one, refuse=True).away("a"):
            pass
    assert "--without-spare warn" in caught.value.try_this


async def test_calls_of_sequences_are_not_steered_around(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path, replicas=[replica("a"), replica("b")])
    write_model(one.repository, config='backend: "x" sequence_batching { }')
    await one.begin(a={"m": (2,)}, b={"m": (2,)})
    async with steering(one).away("a"):
        assert one.publisher.snapshot.models["m"].targets[2].replicas == ("a", "b")


# --- lending: somebody measures on a replica ------------------------------------------------------


async def begun(folder: Path, *others: str) -> Scene:
    """Replica a, and the others, hold version 2 of model m."""
    scene = Scene(folder, *others)
    write_model(scene.repository)
    await scene.plane.begin()
    await scene.round()
    for name in others:
        scene.fleet.saw(name, {"m": (1, 2)})
    await scene.plane.publisher.refresh()
    scene.triton.asked.clear()
    return scene


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    return await begun(tmp_path, "b", "c")


async def test_while_one_is_lent_calls_go_elsewhere_and_its_keeper_rests_until_it_is_back(
    scene: Scene,
) -> None:
    async with scene.keeper.lending.lent("m"):
        assert called(scene.plane) == ("b", "c")
        assert scene.keeper.lending.turn.locked()
        assert scene.triton.asked == []
    assert scene.triton.asked == ["load m"]
    assert scene.keeper.lending.is_back("m")
    assert called(scene.plane) == ("a", "b", "c")
    await scene.round()
    assert scene.triton.asked == ["load m"]


async def test_one_that_the_others_cannot_do_without_is_not_lent(tmp_path: Path) -> None:
    scene = await begun(tmp_path)
    with pytest.raises(NoSpare, match="cannot be taken out of rotation"):
        async with scene.keeper.lending.lent("m"):
            pass
    assert called(scene.plane) == ("a",)


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
    assert called(scene.plane) == ("b", "c")
    await scene.round()
    assert scene.triton.asked == ["load m"]
    assert called(scene.plane) == ("a", "b", "c")


async def test_others_of_the_pool_take_their_turns_while_one_is_lent(tmp_path: Path) -> None:
    scene = await begun(tmp_path, "b", "c", "d")
    async with scene.keeper.lending.lent("m"), scene.plane.steering.away("b"):
        assert called(scene.plane) == ("c", "d")
