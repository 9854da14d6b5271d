"""From a hint over gRPC and KEDA's arithmetic to the replicas that an HPA sets: the same number.

What KEDA makes of a metric: `targetSizeFloat` becomes the target, `metricValueFloat` the value if
it is above 0, each in thousandths (`pkg/scalers/external_scaler.go`, `scaler.go`).
"""

import asyncio
from dataclasses import replace

import grpc.aio
from admin.keda.boards import board, told
from admin.keda.hpa import DOWN_DEFAULT, SYNC, UP_DEFAULT, Hpa, Rules
from admin.keda.serving import serving
from admin.keda.stubs import ScaledObject

from serve.capacity.scaling.signals import Code
from serve.control.scaling.board import HintBoard
from serve.control.scaling.told import PoolNumbers

EXACT = Rules(tolerance=0.0, pods=1000)


async def polled(scaled: ScaledObject) -> tuple[float | None, float]:
    """The metric's value, None after an error, and its target, as KEDA gives them to the HPA."""
    ((name, whole, target),) = await scaled.specs()
    try:
        ((_, number, exact),) = await scaled.metrics(name)
    except grpc.aio.AioRpcError:
        return None, target
    return (exact if exact > 0 else float(number)), target or float(whole)


def follow(hpa: Hpa, *hints: PoolNumbers) -> list[int]:
    """Replicas after each hint, which the HPA looks at once."""

    async def act() -> list[int]:
        shown = HintBoard()
        async with serving(shown) as served:
            scaled, replicas = ScaledObject(served.channel, pool="default"), []
            for index, hint in enumerate(hints):
                shown.put([hint])
                replicas.append(hpa.look(*await polled(scaled), at=index * SYNC))
            return replicas

    return asyncio.run(act())


def numbers(*desired: int) -> list[PoolNumbers]:
    return [told(desired=one) for one in desired]


def test_with_tolerance_0_the_hpa_has_what_the_hint_says_after_each_look() -> None:
    course = (10, 11, 12, 11, 40, 39, 39, 10, 9, 1, 2)
    assert follow(Hpa(10, EXACT, EXACT), *numbers(*course)) == list(course)


def test_with_the_default_tolerance_one_more_or_fewer_of_ten_never_comes() -> None:
    at_once = replace(DOWN_DEFAULT, stabilization=0.0)
    for desired in (9, 11):
        assert follow(Hpa(10, UP_DEFAULT, at_once), *numbers(*[desired] * 3)) == [10, 10, 10]


def test_the_hpas_own_patience_on_the_way_down_comes_on_top_of_the_policys() -> None:
    hints = numbers(10, *[4] * 25)
    patient = follow(Hpa(10, EXACT, replace(EXACT, stabilization=300.0)), *hints)
    assert patient.index(4) * SYNC == 300.0
    assert follow(Hpa(10, EXACT, EXACT), *hints).index(4) == 1


def test_the_hpa_keeps_its_replicas_while_the_hint_is_held_or_too_old() -> None:
    for hint in (told("default", 2, Code.RESTARTED), told(desired=2, at=0.0)):
        assert follow(Hpa(7, EXACT, EXACT), told(desired=8), hint, told(desired=9)) == [8, 8, 9]


def test_an_idle_pool_falls_to_the_hpas_least_and_keda_removes_the_rest() -> None:
    async def is_active() -> bool:
        async with serving(board(told("default", 0, Code.IDLE))) as served:
            return await ScaledObject(served.channel, pool="default").is_active()

    assert follow(Hpa(3, EXACT, EXACT), told("default", 0, Code.IDLE)) == [1]
    assert not asyncio.run(is_active())
