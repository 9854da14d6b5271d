"""Tests that are coroutines: on asyncio's event loop, or on uvloop's as well, within a minute."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

BOUND = 60.0  # seconds, for what takes few
RUNNERS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
Test = Callable[..., Awaitable[None]]


def in_loop(test: Test) -> Callable[..., None]:
    """Run it on asyncio's."""

    @functools.wraps(test)
    def bounded(*given: Any, **named: Any) -> None:
        asyncio.run(_bounded(test(*given, **named)))

    return bounded


def in_each_loop(test: Test) -> Callable[..., None]:
    """Run it once on each."""

    @functools.wraps(test)
    def bounded(runner: Callable[..., None], **named: Any) -> None:
        runner(_bounded(test(**named)))

    first = inspect.Parameter("runner", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = inspect.signature(test).parameters.values()
    bounded.__signature__ = inspect.Signature([first, *given])  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.parametrize("runner", RUNNERS)(bounded)
    return marked


async def _bounded(work: Awaitable[None]) -> None:
    async with asyncio.timeout(BOUND):
        await work
