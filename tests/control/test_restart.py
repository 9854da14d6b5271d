"""A control plane that has just started and has seen nothing yet switches nothing off."""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx2
from builders import write_model

from serve.app.control import ControlPlane
from serve.settings import Settings
from serve.triton.ports import free_ports

PATIENCE = 60.0  # seconds; a bound for what takes milliseconds
LONG_ENOUGH = 0.5  # seconds; a control plane that answers too early does so at once


async def served(client: httpx2.AsyncClient) -> None:
    """Wait until the admin API answers."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.get("/livez")
                return
            except httpx2.ConnectError:
                await asyncio.sleep(0.01)


async def told_to_a_worker(control: httpx2.AsyncClient, serving: int) -> list[Any]:
    """What a worker that serves this generation is told to serve instead."""
    ahead = {"worker": "worker-0", "after": str(serving)}
    try:
        answer = await control.get("/internal/snapshot", params=ahead, timeout=LONG_ENOUGH)
    except httpx2.ReadTimeout:
        return []
    return [answer.json()] if answer.status_code == 200 else []


async def test_a_worker_keeps_what_it_serves_until_control_has_seen_a_replica(
    tmp_path: Path,
) -> None:
    write_model(tmp_path / "models")
    admin, *nobody = free_ports(4, random.random)
    settings = Settings(
        model_repo=str(tmp_path / "models"),
        state=str(tmp_path),
        triton=(f"a=127.0.0.1:{':'.join(map(str, nobody))}",),
        admin_port=admin,
        secret="secret",
    )
    ends = asyncio.Event()
    running = asyncio.create_task(ControlPlane(settings).run(ends))
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{admin}", headers={"authorization": "Bearer secret"}
    ) as client:
        await served(client)
        assert await told_to_a_worker(client, serving=5) == []
    ends.set()
    await running
