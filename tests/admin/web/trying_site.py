"""The pages over a desk for tries, and over datasets and evaluations that are worked off."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from admin.api.admin_scene import application, evaluating, plane
from evaluating_scene import Scene
from trying_desk import Desk

from .web_scene import with_pages

T = TypeVar("T")


def site_with_desk(folder: Path) -> tuple[Any, Desk]:
    """Pages over model `m`, whose version n answers its input times n."""
    one = plane(folder)
    desk = Desk(one, folder)
    return with_pages(application(one, tries=desk.desk)), desk


def evaluated(folder: Path, scenario: Callable[[httpx2.AsyncClient, Scene], Awaitable[T]]) -> T:
    """What somebody does on pages over the dataset `three` and its evaluations."""

    async def run() -> T:
        scene = await Scene(folder).begin()
        tries = Desk(scene.plane, folder).desk
        parts = evaluating(scene.datasets, scene.evaluations) | {"tries": tries}
        app = application(scene.plane, **parts)
        working = asyncio.create_task(scene.evaluations.run())
        transport = httpx2.ASGITransport(app=with_pages(app), raise_app_exceptions=False)
        headers = {"accept": "text/html"}
        base = "http://localhost:8080"
        async with httpx2.AsyncClient(
            transport=transport, base_url=base, headers=headers
        ) as client:
            try:
                return await scenario(client, scene)
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    return asyncio.run(run())
