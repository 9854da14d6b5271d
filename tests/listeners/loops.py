"""Tests that are coroutines, on the event loops that a gateway may run on."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
BOTH = tuple(LOOPS)


def on_loops(*loops: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of a coroutine, one case for each of these loops."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
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
