"""Rounds that are left out: when nothing is left to do, and until anything has changed."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from builders import ControlPlane, replica, write_model

from serve.control.models import By
from serve.control.observations import LoadFailure
from serve.control.reconciliation.reconciler import PER_SECOND, REPEATED, Looks, Resting

HELD = {"m": (1, 2)}
Change = Callable[[ControlPlane], object]


async def another_model(plane: ControlPlane) -> None:
    write_model(plane.repository, "n")
    await plane.inventory.scan()


async def a_model_less(plane: ControlPlane) -> None:
    shutil.rmtree(plane.repository / "m")
    await plane.inventory.scan()


async def another_pool(plane: ControlPlane) -> None:
    plane.fleet.join(replica("c", pool="a100"))
    await plane.models.configure("m", objective=None, pool="a100", by=By("tests"))


IDLE: dict[str, Change] = {
    "nothing": lambda plane: plane.inventory.scan(settled=True),
    "seen again": lambda plane: plane.fleet.saw("a", dict(HELD)),
    "another is lost": lambda plane: plane.fleet.lost("b", "refused"),
    "a label": lambda plane: plane.models.set_label("m", "stable", 1, By("tests")),
}
BUSY: dict[str, Change] = {
    "lost": lambda plane: plane.fleet.lost("a", "refused"),
    "holds less": lambda plane: plane.fleet.saw("a", {"m": (1,)}),
    "answers wrongly": lambda plane: plane.fleet.bar("a", "m", [1], "wrong"),
    "joins": lambda plane: plane.fleet.joining.add("a"),
    "another model": another_model,
    "a model less": a_model_less,
    "another pool": another_pool,
    "half a minute": lambda plane: setattr(plane.clock, "now", plane.clock.now + REPEATED),
}


async def resting_on_a(plane: ControlPlane) -> Callable[[], bool]:
    """Replicas a and b hold everything; gives whether a rests, from now on."""
    write_model(plane.repository, "m")
    await plane.begin(a=HELD, b=HELD)
    resting = Resting("a", plane.fleet, plane.inventory, clock=plane.clock)
    resting.begin()
    return lambda: resting.holds(plane.fleet.observations["a"])


@pytest.mark.parametrize("change", IDLE | BUSY)
async def test_a_replica_that_has_everything_rests_until_anything_has_changed_for_it(
    tmp_path: Path, change: str
) -> None:
    plane = ControlPlane(tmp_path)
    rests = await resting_on_a(plane)
    assert rests()
    done = (IDLE | BUSY)[change](plane)
    if isinstance(done, Awaitable):
        await done
    assert rests() is (change in IDLE)


async def test_a_replica_with_something_to_do_does_not_rest(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    await resting_on_a(plane)
    resting = Resting("a", plane.fleet, plane.inventory, clock=plane.clock)
    resting.begin()
    assert repr(resting) == "<Resting a yes>"
    resting.end()
    assert not resting.holds(plane.fleet.observations["a"])
    plane.fleet.failures["a", "m"] = LoadFailure("bad file", (), 1, 0.0)
    resting.begin()
    assert not resting.holds(plane.fleet.observations["a"])
    plane.fleet.failures.clear()
    await another_pool(plane)  # it waits until no calls come there any more
    resting.begin()
    assert not resting.holds(plane.fleet.observations["a"])


def test_a_large_fleet_is_looked_at_in_turn() -> None:
    for replicas, tick, pause, rounds in (
        (0, 0.5, 0.5, 1.0),
        (1, 0.5, 0.5, 1.0),
        (PER_SECOND // 2, 0.5, 0.5, 1.0),
        (PER_SECOND, 0.5, 1.0, 2.0),
        (10 * PER_SECOND, 0.5, 10.0, 5.0),
        (5000, 60.0, 60.0, 120.0),  # rounds are no closer than looks that were asked for
    ):
        looks = Looks(lambda count=replicas: int(count), tick=tick)  # type: ignore[misc]
        assert (looks.pause, looks.rounds) == (pause, rounds), replicas
