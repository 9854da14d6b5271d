"""Rounds that are left out: when nothing is left to do, and until anything has changed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from builders import ControlPlane, replica, write_model

from serve.control.models import By
from serve.control.observations import Failure
from serve.control.reconciling.looks import PER_SECOND, Looks
from serve.control.reconciling.resting import REPEATED, Resting

HELD = {"m": (1, 2)}
Change = Callable[[ControlPlane], Awaitable[object]]


def rests(folder: Path, change: Change) -> tuple[bool, bool]:
    """Whether a replica that has nothing to do rests; and whether it still does after a change."""

    async def work() -> tuple[bool, bool]:
        plane = ControlPlane(folder)
        write_model(plane.repository, "m")
        await plane.begin(a=HELD, b=HELD)
        resting = Resting("a", plane.fleet, plane.inventory, clock=plane.clock)
        resting.begin()
        before = resting.holds(plane.fleet.observations["a"])
        await change(plane)
        return before, resting.holds(plane.fleet.observations["a"])

    return asyncio.run(work())


async def nothing(plane: ControlPlane) -> None:
    await plane.inventory.scan(settled=True)


async def seen_again(plane: ControlPlane) -> None:
    plane.fleet.saw("a", dict(HELD))


async def another_is_lost(plane: ControlPlane) -> None:
    plane.fleet.lost("b", "refused")


async def a_label(plane: ControlPlane) -> None:
    await plane.models.set_label("m", "stable", 1, By("tests"))


@pytest.mark.parametrize("change", [nothing, seen_again, another_is_lost, a_label])
def test_a_replica_that_has_everything_rests_through_what_does_not_concern_it(
    tmp_path: Path, change: Change
) -> None:
    assert rests(tmp_path, change) == (True, True)


async def lost(plane: ControlPlane) -> None:
    plane.fleet.lost("a", "refused")


async def holds_less(plane: ControlPlane) -> None:
    plane.fleet.saw("a", {"m": (1,)})


async def answers_wrongly(plane: ControlPlane) -> None:
    plane.fleet.bar("a", "m", [1], "wrong")


async def joins(plane: ControlPlane) -> None:
    plane.fleet.joining.add("a")


async def another_model(plane: ControlPlane) -> None:
    write_model(plane.repository, "n")
    await plane.inventory.scan()


async def another_pool(plane: ControlPlane) -> None:
    plane.fleet.join(replica("c", pool="a100"))
    await plane.models.configure("m", objective=None, pool="a100", by=By("tests"))


async def half_a_minute(plane: ControlPlane) -> None:
    plane.clock.now += REPEATED


@pytest.mark.parametrize(
    "change",
    [lost, holds_less, answers_wrongly, joins, another_model, another_pool, half_a_minute],
)
def test_it_rests_no_longer_when_anything_has_changed_for_it(
    tmp_path: Path, change: Change
) -> None:
    assert rests(tmp_path, change) == (True, False)


def test_a_replica_on_which_something_fails_or_leaves_does_not_rest(tmp_path: Path) -> None:
    async def work() -> None:
        plane = ControlPlane(tmp_path)
        write_model(plane.repository, "m")
        await plane.begin(a=HELD, b=HELD)
        resting = Resting("a", plane.fleet, plane.inventory, clock=plane.clock)
        plane.fleet.failures["a", "m"] = Failure("bad file", (), 1, 0.0)
        resting.begin()
        assert not resting.holds(plane.fleet.observations["a"])
        plane.fleet.failures.clear()
        await another_pool(plane)  # it waits until no calls come there any more
        resting.begin()
        assert not resting.holds(plane.fleet.observations["a"])

    asyncio.run(work())


def test_who_is_asked_for_rests_no_longer(tmp_path: Path) -> None:
    async def work() -> None:
        plane = ControlPlane(tmp_path)
        await plane.begin(a={}, b={})
        resting = Resting("a", plane.fleet, plane.inventory, clock=plane.clock)
        resting.begin()
        assert repr(resting) == "<Resting a yes>"
        resting.end()
        assert not resting.holds(plane.fleet.observations["a"])

    asyncio.run(work())


@pytest.mark.parametrize(
    ("replicas", "pause", "rounds"),
    [
        (0, 0.5, 1.0),
        (1, 0.5, 1.0),
        (PER_SECOND // 2, 0.5, 1.0),
        (PER_SECOND, 1.0, 2.0),
        (10 * PER_SECOND, 10.0, 5.0),
    ],
)
def test_a_large_fleet_is_looked_at_in_turn(replicas: float, pause: float, rounds: float) -> None:
    looks = Looks(lambda: int(replicas), tick=0.5)
    assert (looks.pause, looks.rounds) == (pause, rounds)


def test_rounds_are_no_closer_than_looks_that_were_asked_for() -> None:
    looks = Looks(lambda: 5000, tick=60.0)
    assert (looks.pause, looks.rounds) == (60.0, 120.0)
