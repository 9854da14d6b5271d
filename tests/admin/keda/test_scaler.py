"""Which hints may be followed, and at which moments a stream of activity says so."""

import asyncio
from collections.abc import Callable

import pytest
from admin.keda.boards import board, told
from builders import Clock

from serve.admin.keda.scaler import ExternalScaler
from serve.capacity.scaling.signals import Code
from serve.control.scaling.board import HintBoard
from serve.control.scaling.told import PoolNumbers
from serve.core.errors import NotFound, ServegateError, Unavailable


def scaler(shown: HintBoard, now: float = 1000.0) -> ExternalScaler:
    return ExternalScaler(shown, wall=Clock(now))


def refusal(shown: HintBoard, pool: str = "default", now: float = 1000.0) -> ServegateError:
    with pytest.raises(ServegateError) as refused:
        scaler(shown, now).desired(pool)
    return refused.value


def test_the_number_is_the_hints_of_the_pool() -> None:
    for desired in (0, 1, 250):
        shown = board(told(desired=desired), told("t4", 2))
        assert [scaler(shown).desired(pool) for pool in ("default", "t4")] == [desired, 2]
    assert isinstance(refusal(HintBoard()), Unavailable), "before the first round"
    error = refusal(board(told("a100"), told("t4")), "default")
    assert isinstance(error, NotFound)
    assert "a100, t4" in str(error)


def test_a_hold_is_no_number_to_follow_but_one_that_is_only_little_known_is() -> None:
    for code in (Code.STALE, Code.INVALID, Code.RESTARTED):
        error = refusal(board(told("default", 2, code, Code.LEAST)))
        assert isinstance(error, Unavailable)
        assert str(error) == f"the hint for pool 'default' is on hold: it is {code}"
    assert scaler(board(told("default", 3, Code.UNKNOWN, Code.MISSED))).desired("default") == 3


def test_a_hint_may_be_followed_for_as_long_as_it_lasts() -> None:
    shown = board(told(desired=3, at=1000.0, lasts=30.0))
    assert scaler(shown, 1030.0).desired("default") == 3
    error = refusal(shown, now=1031.0)
    assert isinstance(error, Unavailable)
    assert "31 s old" in str(error)


def follow(shown: HintBoard, *rounds: Callable[[], object]) -> list[int]:
    """How often a stream spoke at its opening, and after each round."""

    async def act() -> list[int]:
        one = scaler(shown)
        said: list[None] = []
        heard = []

        async def listen() -> None:
            async for _ in one.wakes("default"):
                said.append(None)

        listening = asyncio.create_task(listen())
        for play in (lambda: None, *rounds):
            play()
            await settled(listening)
            heard.append(len(said))
        one.close()
        async with asyncio.timeout(10):
            await listening
        return [now - before for before, now in zip([0, *heard], heard, strict=False)]

    return asyncio.run(act())


async def settled(task: "asyncio.Task[None]") -> None:
    """Long enough for a task on this loop to do all that it can do without the world."""
    for _ in range(20):
        await asyncio.sleep(0)


IDLE, WAKING = Code.IDLE, Code.WAKING


@pytest.mark.parametrize(
    ("begins", "rounds", "speaks"),
    [
        (told(desired=3), [told(desired=4)], [1, 0]),
        (
            told("default", 0, IDLE, ready=0),
            [told("default", 0, IDLE, ready=0), told("default", 1, WAKING, ready=0)],
            [0, 0, 1],
        ),
        (
            told("default", 1, WAKING, ready=0),
            [
                told("default", 1, WAKING, ready=0),
                told("default", 1, ready=0, starting=1),
                told("default", 1, ready=1),
            ],
            [1, 1, 0, 0],
        ),
        (told(desired=2), [told("default", 0, IDLE), told("default", 1)], [1, 0, 1]),
        (told(desired=2), [told("default", 2, Code.STALE), told("default", 2)], [1, 0, 0]),
        (None, [told()], [0, 1]),
    ],
    ids=[
        "it says at once that a pool has work and does not repeat it",
        "it is silent until somebody wakes the pool",
        "it repeats itself until some replica comes",
        "it wakes a pool again that slept again",
        "a hold changes nothing",
        "it waits for the first round",
    ],
)
def test_a_stream_speaks_when_a_pool_is_to_wake(
    begins: PoolNumbers | None, rounds: list[PoolNumbers], speaks: list[int]
) -> None:
    shown = board(begins) if begins else HintBoard()
    assert follow(shown, *(lambda hint=hint: shown.put([hint]) for hint in rounds)) == speaks


def test_a_stream_ends_with_the_pool_or_without_an_error_when_it_is_closed() -> None:
    async def act() -> None:
        shown = board(told())
        heard = scaler(shown).wakes("default")
        await anext(heard)
        shown.put([told("t4")])
        for stream in (heard, scaler(shown).wakes("default")):
            with pytest.raises(NotFound):
                await anext(stream)
        one = scaler(board(told("default", 0, IDLE)))
        one.close()
        assert [None async for _ in one.wakes("default")] == []
        await one.closed()

    asyncio.run(act())
