"""The snapshot: for people to look at, and for workers to wait for."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from serve.core.snapshot import LAST_GENERATION
from serve.listeners.admin import schemas
from serve.listeners.admin.context import InControl, worker_only

router = APIRouter()
internal = APIRouter()

LONGEST_POLL = 25.0  # seconds


@router.get("/api/snapshot", tags=["snapshot"], summary="Show what the workers serve")
async def show_snapshot(control: InControl) -> schemas.SnapshotView:
    """The compiled view of the data plane, and the generation that each worker serves."""
    publisher = control.publisher
    return schemas.SnapshotView(
        generation=publisher.snapshot.generation,
        workers=[schemas.WorkerView(**schemas.worker(entry)) for entry in publisher.workers],
        snapshot=schemas.snapshot(publisher.snapshot),
    )


@internal.get("/internal/snapshot", include_in_schema=False, dependencies=[Depends(worker_only)])
async def poll_snapshot(
    request: Request,
    control: InControl,
    worker: Annotated[str, Query(max_length=300)],
    after: Annotated[int, Query(ge=0, le=LAST_GENERATION)] = 0,
) -> Response:
    """A worker acknowledges a generation and waits for the next one; 204 when the time is up."""
    polling = asyncio.create_task(control.publisher.poll(worker, after, LONGEST_POLL))
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait((polling, leaving), return_when=asyncio.FIRST_COMPLETED)
        snapshot = polling.result() if polling.done() else None  # which nobody will read
    finally:
        polling.cancel()
        leaving.cancel()
    return Response(status_code=204) if snapshot is None else JSONResponse(snapshot.to_json())


async def _left(request: Request) -> None:
    """Return when the worker has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
