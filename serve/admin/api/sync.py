"""The agents beside the Tritons: what they have to have, what they have, and the bytes.

All of it wants the workers' shared secret, and is no part of the API for people.
"""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from serve.admin.api.context import worker_only
from serve.admin.api.long_polls import unless_left
from serve.control.deliveries.agents import AgentDelivery
from serve.core.errors import NotFound

LONGEST_POLL = 25.0  # seconds
_FROM = re.compile(r"^bytes=([0-9]{1,18})-\Z")

Name = Annotated[str, Field(min_length=1, max_length=300)]
Number = Annotated[int, Field(ge=1, lt=10**18)]


class Blobs(Protocol):
    """What this needs of the storage."""

    def stream(self, sha256: str, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes of a blob from `start` on; `NotFound`."""


class Trouble(BaseModel):
    """Why an agent cannot have a version."""

    slot: tuple[Name, Number]
    why: Annotated[str, Field(max_length=2000)]


class Delivered(BaseModel):
    """What an agent has of a page: physical names and numbers."""

    replica: Name
    page: Name
    slots: Annotated[list[tuple[Name, Number]], Field(max_length=100_000)]
    problems: Annotated[list[Trouble], Field(max_length=100_000)] = []


def sync_router(agents: AgentDelivery, blobs: Blobs) -> APIRouter:
    """The routes of one control plane whose Tritons have agents."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(worker_only)])

    @router.get("/internal/wanted")
    async def wanted(
        request: Request,
        replica: Annotated[str, Query(min_length=1, max_length=300)],
        have: Annotated[str, Query(max_length=300)] = "",
    ) -> Response:
        """The page, once it is another than the agent has; 204 when the time is up."""
        page = await unless_left(request, agents.poll(have, LONGEST_POLL, replica=replica))
        return Response(status_code=204) if page is None else JSONResponse(page.to_json())

    @router.post("/internal/delivered")
    async def delivered(report: Delivered) -> dict[str, bool]:
        """An agent says what it has; whether that was a report on the latest page."""
        problems = {trouble.slot: trouble.why for trouble in report.problems}
        return {"believed": agents.delivered(report.replica, report.page, report.slots, problems)}

    @router.get("/internal/blobs/{sha256}")
    async def blob(sha256: str, range: Annotated[str, Header()] = "") -> Response:
        """A blob of a version that is wanted; `Range: bytes=N-` goes on where a transfer ended."""
        file = agents.wanted_blob(sha256)
        if file is None:
            raise NotFound(f"no required version has the blob {sha256[:64]}")
        match = _FROM.match(range)
        start = int(match[1]) if match else 0
        if match and start >= file.size:
            return Response(status_code=416, headers={"content-range": f"bytes */{file.size}"})
        headers = {"content-length": str(file.size - start)}
        if match:
            headers["content-range"] = f"bytes {start}-{file.size - 1}/{file.size}"
        pieces = blobs.stream(sha256, start)
        first = await anext(pieces, b"")  # whether it is there has to be known before the status
        status = 206 if match else 200
        return StreamingResponse(_all(first, pieces), status, headers, "application/octet-stream")

    return router


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with contextlib.AsyncExitStack() as stack:
        if close := getattr(rest, "aclose", None):
            stack.push_async_callback(close)
        yield first
        async for piece in rest:
            yield piece
