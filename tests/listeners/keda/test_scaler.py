"""Which hints may be followed, and at which moments a stream of activity says so."""

import asyncio
from collections.abc import Callable

import pytest
from builders import Clock
from listeners.keda.boards import board, told

from serve.capacity.scaling.signals import Code
from serve.control.scaling.board import Board
from serve.core.errors import NotFound, ServegateError, Unavailable
from serve.listeners.keda.scaler import ExternalScaler


def scaler(shown: Board, now: float = 1000.0) -> ExternalScaler:
    return ExternalScaler(shown, wall=Clock(now))


def refusal(shown: Board, pool: str = "default", now: float = 1000.0) -> ServegateError:
    with pytest.raises(ServegateError) as refused:
        scaler(shown, now).desired(pool)
    return refused.value


@pytest.mark.parametrize("desired", [0, 1, 250])
def test_the_number_is_the_hints(desired: int) -> None:
    assert scaler(board(told(desired=desired))).desired("default") == desired


def test_each_pool_has_its_own_number() -> None:
    shown = board(told("a100", 4), told("t4", 2))
    assert [scaler(shown).desired(pool) for pool in ("a100", "t4")] == [4, 2]


def test_before_the_first_round_nothing_can_be_told_of_any_pool() -> None:
    assert isinstance(refusal(Board()), Unavailable)


def test_a_pool_without_a_hint_is_not_found_and_the_others_are_named() -> None:
    error = refusal(board(told("a100"), told("t4")), "default")
    assert isinstance(error, NotFound)
    assert "a100, t4" in str(error)


def test_a_hint_may_be_followed_for_as_long_as_it_lasts() -> None:
    shown = board(told(desired=3, at=1000.0, lasts=30.0))
    assert scaler(shown, 1030.0).desired("default") == 3
    error = refusal(shown, now=1031.0)
    assert isinstance(error, Unavailable)
    assert "31 s ago" in str(error)


@pytest.mark.parametrize("code", [Code.STALE, Code.INVALID, Code.RESTARTED])
def test_a_hold_is_no_number_to_follow(code: Code) -> None:
    error = refusal(board(told("default", 2, code, Code.LEAST)))
    assert isinstance(error, Unavailable)
    assert str(error) == f"the pool 'default' stays as it is: it is {code}"


def test_a_number_that_is_only_little_known_is_followed() -> None:
    assert scaler(board(told("default", 3, Code.UNKNOWN, Code.MISSED))).desired("default") == 3


def follow(shown: Board, *rounds: Callable[[], object]) -> list[int]:
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


def test_a_stream_says_at_once_that_a_pool_has_work_and_does_not_repeat_it() -> None:
    shown = board(told(desired=3))
    assert follow(shown, lambda: shown.put([told(desired=4)])) == [1, 0]


def test_a_stream_of_an_idle_pool_is_silent_until_somebody_wakes_it() -> None:
    shown = board(told("default", 0, Code.IDLE, ready=0))
    rounds = [
        lambda: shown.put([told("default", 0, Code.IDLE, ready=0)]),
        lambda: shown.put([told("default", 1, Code.WAKING, ready=0)]),
    ]
    assert follow(shown, *rounds) == [0, 0, 1]


def test_the_wish_is_repeated_until_some_replica_comes() -> None:
    shown = board(told("default", 1, Code.WAKING, ready=0))
    rounds = [
        lambda: shown.put([told("default", 1, Code.WAKING, ready=0)]),
        lambda: shown.put([told("default", 1, ready=0, starting=1)]),
        lambda: shown.put([told("default", 1, ready=1)]),
    ]
    assert follow(shown, *rounds) == [1, 1, 0, 0]


def test_a_pool_that_slept_again_is_woken_again() -> None:
    shown = board(told(desired=2))
    rounds = [
        lambda: shown.put([told("default", 0, Code.IDLE)]),
        lambda: shown.put([told("default", 1)]),
    ]
    assert follow(shown, *rounds) == [1, 0, 1]


def test_a_hold_changes_nothing_in_a_stream() -> None:
    shown = board(told(desired=2))
    rounds = [
        lambda: shown.put([told("default", 2, Code.STALE)]),
        lambda: shown.put([told("default", 2)]),
    ]
    assert follow(shown, *rounds) == [1, 0, 0]


def test_a_stream_that_is_opened_before_the_first_round_waits_for_it() -> None:
    shown = Board()
    assert follow(shown, lambda: shown.put([told()])) == [0, 1]


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_stream_ends_with_the_pool(opened: str) -> None:
    async def act() -> None:
        shown = board(told()) if opened == "before" else board(told("t4"))
        heard = scaler(shown).wakes("default")
        if opened == "before":
            await anext(heard)
            shown.put([told("t4")])
        with pytest.raises(NotFound):
            await anext(heard)

    asyncio.run(act())


def test_closing_ends_a_stream_without_an_error() -> None:
    async def act() -> None:
        one = scaler(board(told("default", 0, Code.IDLE)))
        one.close()
        assert [None async for _ in one.wakes("default")] == []
        await one.closed()

    asyncio.run(act())
