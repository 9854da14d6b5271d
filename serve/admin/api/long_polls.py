"""Long polls: an answer that is waited for, unless whoever asked has gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

T = TypeVar("T")


async def unless_left(request: Request, work: Coroutine[Any, Any, T | None]) -> T | None:
    """What `work` gives; it is cancelled, for None, when the caller closes the connection."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None  # which nobody will read
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
