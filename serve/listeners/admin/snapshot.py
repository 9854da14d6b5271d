"""The snapshot: for people to look at, and for workers to wait for."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from serve.listeners.admin import schemas
from serve.listeners.admin.context import InControl, worker_only

router = APIRouter()

LONGEST_POLL = 25.0  # seconds


@router.get("/api/snapshot", tags=["snapshot"], summary="Show what the workers serve")
async def show_snapshot(control: InControl) -> schemas.SnapshotView:
    """The compiled view of the data plane, and the generation that each worker serves."""
    publisher = control.publisher
    return schemas.SnapshotView(
        generation=publisher.snapshot.generation,
        workers=[schemas.WorkerView(**schemas.worker(entry)) for entry in publisher.workers],
        snapshot=publisher.snapshot.to_json(),
    )


@router.get("/internal/snapshot", include_in_schema=False, dependencies=[Depends(worker_only)])
async def poll_snapshot(
    control: InControl,
    worker: Annotated[str, Query(max_length=100)],
    after: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """A worker acknowledges a generation and waits for the next one; 204 when the time is up."""
    snapshot = await control.publisher.poll(worker, after, LONGEST_POLL)
    if snapshot is None:
        return Response(status_code=204)
    return JSONResponse(snapshot.to_json())
