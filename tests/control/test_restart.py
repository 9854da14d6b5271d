"""A control plane that has just started and has seen nothing yet switches nothing off."""

import asyncio
import random
from pathlib import Path

import httpx2
import pytest
from builders import write_model

from serve.app.control import ControlPlane
from serve.settings import Settings
from serve.triton.ports import free_ports

PATIENCE = 60.0  # seconds; a bound for what takes milliseconds
LONG_ENOUGH = 0.5  # seconds; a control plane that answers too early does so at once


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
    ahead = {"worker": "worker-0", "after": "5"}
    async with (
        asyncio.timeout(PATIENCE),
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{admin}", headers={"authorization": "Bearer secret"}
        ) as client,
    ):
        while True:
            try:
                await client.get("/livez")
                break
            except httpx2.ConnectError:
                await asyncio.sleep(0.01)
        with pytest.raises(httpx2.ReadTimeout):  # it is told nothing instead
            await client.get("/internal/snapshot", params=ahead, timeout=LONG_ENOUGH)
    ends.set()
    await running
