"""Replicas over the admin API."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, InControl
from serve.control.observations import Observation
from serve.triton.metrics import ReplicaScrape

router = APIRouter(tags=["replicas"])


@router.get("/api/replicas", summary="List all replicas")
async def list_replicas(
    control: InControl,
    readings: Annotated[bool, Query(description="Also read the metrics of each replica.")] = True,
) -> list[schemas.ReplicaView]:
    """Returns what each replica has loaded, what it lacks and why, and its current metrics."""
    observations = [seen for _, seen in sorted(control.fleet.observations.items())]
    told = [_readings(control, seen) if readings else _no_readings() for seen in observations]
    now = control.clock()
    return [
        schemas.ReplicaView(
            **schemas.replica(seen, _failures(control, seen.replica.name), reading, now),
            preparing=seen.is_up and control.fleet.is_busy(seen.replica.name),
            zone=_zone(control, seen.replica.name),
        )
        for seen, reading in zip(observations, await asyncio.gather(*told), strict=True)
    ]


async def _readings(control: AdminContext, seen: Observation) -> ReplicaScrape | None:
    return await control.readings(seen.replica) if seen.is_up else None


async def _no_readings() -> None:
    return None


def _zone(control: AdminContext, name: str) -> str:
    endpoint = control.discovering.endpoint(name) if control.discovering else None
    return endpoint.zone if endpoint else ""


def _failures(control: AdminContext, name: str) -> dict[str, str]:
    return {
        model: failure.reason
        for (replica, model), failure in control.fleet.failures.items()
        if replica == name
    }
