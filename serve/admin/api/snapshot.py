"""The snapshot: for people to look at, and for workers to wait for."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from serve.admin.api import schemas
from serve.admin.api.context import InControl, worker_only
from serve.admin.api.long_polls import unless_left
from serve.core.snapshot import LAST_GENERATION

router = APIRouter()
internal = APIRouter()

LONGEST_POLL = 25.0  # seconds


@router.get("/api/snapshot", tags=["snapshot"], summary="Show the snapshot of the workers")
async def show_snapshot(control: InControl) -> schemas.SnapshotView:
    """Returns the compiled configuration of the data plane, and the generation of each worker.

    It includes all changes that this API has already confirmed, and waits for changes in progress.
    """
    publisher = control.publisher
    await publisher.settled()
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
    snapshot = await unless_left(request, control.publisher.poll(worker, after, LONGEST_POLL))
    if snapshot is None:
        return Response(status_code=204)
    return Response(control.publisher.written, media_type="application/json")
