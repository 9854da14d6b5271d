"""Tests that are coroutines: on one event loop, or on each that a gateway may run on."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
BOTH = tuple(LOOPS)
BOUND = 60.0  # seconds, for what takes few
Test = Callable[..., Awaitable[None]]


def in_loop(test: Test) -> Callable[..., None]:
    """Run it on asyncio's, within a minute."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(_bounded(test(*given, **named)))

    return run


def in_each_loop(test: Test) -> Callable[..., None]:
    """Run it once on each, within a minute."""

    @functools.wraps(test)
    def bounded(**named: Any) -> Awaitable[None]:
        return _bounded(test(**named))

    return on_loops()(bounded)


def on_loops(*loops: str) -> Callable[[Test], Callable[..., None]]:
    """Make a test of a coroutine, one case for each of these loops."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def run(loop: str, **given: Any) -> None:
            LOOPS[loop](test(**given))  # type: ignore[arg-type]

        return parametrized(run, test, loops or BOTH)

    return decorate


def parametrized(
    run: Callable[..., None], test: Callable[..., Any], loops: tuple[str, ...], *, hidden: int = 0
) -> Callable[..., None]:
    """Let pytest call `run` with a loop, and with what `test` takes but for its first `hidden`."""
    others = list(inspect.signature(test).parameters.values())[hidden:]
    first = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.parametrize("loop", loops)(run)
    return marked


async def _bounded(work: Awaitable[None]) -> None:
    async with asyncio.timeout(BOUND):
        await work
