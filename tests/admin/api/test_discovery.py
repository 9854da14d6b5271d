"""Discovery over the admin API: how each source is, and where a replica was found."""

import asyncio
from pathlib import Path
from typing import Any, cast

from admin.api.admin_scene import Client, application, plane, play

from serve.control.discovery import Discovering
from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Endpoint, Listing
from serve.triton.discovery.source import Listener


class FakeSource:
    """Names replica a and fails, or says nothing."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self._endpoints = endpoints

    async def run(self, listener: Listener) -> None:
        if self._endpoints:
            listener.told(Listing(self._endpoints, ("odd",)))
            listener.failed(Unavailable("it is away"))
        await asyncio.Event().wait()


def test_every_source_is_listed_and_a_replica_has_the_zone_that_one_tells(tmp_path: Path) -> None:
    one = plane(tmp_path)
    found = Endpoint(Replica("a", "host", 1, 2, 3), zone="eu-1b")
    discovering = Discovering(
        {"kubernetes": FakeSource(found), "dns=x:1:2:3": FakeSource()},
        [],
        fleet=one.fleet,
        membership=cast(Any, None),  # before all have told their list nobody is told of it
        may_be_empty=lambda: False,
        clock=one.clock,
    )
    app = application(one, discovering=discovering)

    async def look(client: Client) -> tuple[Any, Any]:
        running = asyncio.create_task(discovering.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        one.clock.now += 7
        answers = await client.get("/api/discovery"), await client.get("/api/replicas")
        running.cancel()
        return answers[0].json(), answers[1].json()

    sources, (a, b) = play(app, look)
    away = {"name": "kubernetes", "endpoints": 1, "why": "it is away", "problems": ["odd"]}
    silent = {"name": "dns=x:1:2:3", "endpoints": None, "why": "it has not answered yet"}
    down = {"up": False, "seconds": 7.0}
    assert sources == [down | away, down | silent | {"problems": []}]
    assert (a["zone"], b["zone"]) == ("eu-1b", "")
