"""Following an evaluation to its end: a bar on a terminal, lines elsewhere, events with --json."""

import json as json_module
from collections.abc import AsyncIterator, Mapping
from typing import Any

from serve.cli.channel import Channel
from serve.cli.client import AdminClient, error_of
from serve.cli.stages import OnEvent, stages
from serve.cli.talk import CommandTalk
from serve.workbench.evaluation.cli.options import path_of

WAITING = ("queued", "running")
_QUIET = 60.0  # seconds: the gateway says something every ten


async def follow(admin: AdminClient, identity: str, talking: CommandTalk) -> Mapping[str, Any]:
    """Tell how far it is until it has ended; the evaluation with its report."""
    async with admin.asynchronous() as client:
        channel = Channel(client, talking)
        with stages(talking) as tell:
            while True:
                page: Mapping[str, Any] = await channel.ask("GET", path_of(identity))
                if page["state"] not in WAITING:
                    return page
                teller = _Teller(tell)
                async for line in _events(client, identity):
                    teller.tell(line)


class _Teller:
    """States as stages, and rows as shares of them."""

    def __init__(self, tell: OnEvent) -> None:
        self._tell = tell
        self._state = ""

    def tell(self, line: Mapping[str, Any]) -> None:
        """How it is now."""
        if line["state"] != self._state:
            self._state = line["state"]
            self._tell({"type": "stage", "stage": self._state, "text": _STATES[self._state]})
        if self._state == "running":
            shares = {"done": line["done"], "total": line["total"], "failed": line["failed"]}
            self._tell({"type": "share", "stage": self._state, **shares})


_STATES = {
    "queued": "queued",
    "running": "calling the model",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}


async def _events(client: Any, identity: str) -> AsyncIterator[Mapping[str, Any]]:
    """What the gateway streams, until it ends or breaks; whoever asks looks again then."""
    import httpx2

    try:
        async with client.stream("GET", f"{path_of(identity)}/events", timeout=_QUIET) as answer:
            if not answer.is_success:
                await answer.aread()
                raise error_of(answer)
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json_module.loads(line.removeprefix("data: "))
    except (httpx2.HTTPError, ValueError):
        return
