"""Groups of pools, from what is read to the hints of each: the cheapest that can, comes first."""

import math

import pytest
from builders import replica
from control.scaling.watched_pools import Scene

from serve.capacity.scaling.groups import UP
from serve.capacity.scaling.policy import TICK
from serve.capacity.scaling.signals import Bounds
from serve.control.scaling.signals import Allowed


def scene(l4: Bounds, a100: Bounds, *, objective: str = "") -> Scene:
    """Pool `l4` at a price of 1 and pool `a100` at 3, of one replica each, hold model `m`."""
    made = Scene(replicas=(replica("a", pool="l4"), replica("b", pool="a100")))
    made.group("vision", "l4", "a100")
    made.decided["model", "m"] = {"pool": "l4", "objective": objective}
    made.allowed = {
        "l4": Allowed(l4, cost=1.0, group="vision"),
        "a100": Allowed(a100, cost=3.0, group="vision"),
    }
    made.settle()
    return made


def busy(one: Scene, *, rate: float, slow: float, fast: float, rounds: int = 4) -> None:
    """An execution of one call takes `slow` seconds on `l4` and `fast` ones on `a100`."""
    for _ in range(rounds):
        one.execute("b", b1=(int(rate * TICK / 2), fast))
        one.work(rate=rate, on="a", b1=(int(rate * TICK / 2), slow))


def parts(one: Scene) -> dict[str, float]:
    return {pool: one.model("m", pool).recent for pool in ("l4", "a100")}


WIDE = Bounds(1, 20, to_zero=True)


def test_the_cheapest_pool_bears_all_calls_unless_it_is_too_slow_for_the_objective() -> None:
    one = scene(WIDE, WIDE, objective="p99<100ms")
    busy(one, rate=80.0, slow=0.06, fast=0.03)
    assert parts(one) == pytest.approx({"l4": 0.0, "a100": 80.0})
    assert one.hint("l4").hint.desired == 1
    assert one.hint("a100").hint.desired == math.ceil(80 * 0.03 / UP)
    one.decided["model", "m"] = {"pool": "l4", "objective": "p99<200ms"}
    one.look()
    assert parts(one)["a100"] == 0.0


def test_what_the_cheapest_has_no_gpus_for_is_borne_by_the_next() -> None:
    one = scene(Bounds(1, 20, budget=2, to_zero=True), WIDE, objective="p99<200ms")
    busy(one, rate=80.0, slow=0.05, fast=0.025)
    room = 2 * UP / 0.05
    assert parts(one) == pytest.approx({"l4": room, "a100": 80.0 - room})
    assert one.hint("l4").hint.desired == 2
    assert one.hint("a100").hint.desired == math.ceil((80 - room) * 0.025 / UP)
