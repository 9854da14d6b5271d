"""Probes: whether a data plane lives, and whether calls may come to it. On its metrics port.

| path      | 200                                                | 503, with a sentence why       |
|-----------|----------------------------------------------------|--------------------------------|
| `/livez`  | this process answers, and the workers' parent runs | it has ended, and starts again |
| `/readyz` | every worker answers, and serves a snapshot        | one does not; or calls drain   |

A data plane that drains is alive: whoever stops it knows for how long. A worker that hangs makes it
unready, and is killed soon (`watchdog.py`); that is no reason to end the others.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from serve.app.internal_http import InternalConnection

LIVE, READY = "/livez", "/readyz"
PATIENCE = 0.8  # seconds for the workers; a kubelet waits for one


class Probes:
    """Of one data plane: `workers` on their Unix sockets; `runs` says whether their parent does."""

    def __init__(
        self, workers: Mapping[str, Path], *, runs: Callable[[], bool], patience: float = PATIENCE
    ) -> None:
        self._workers = workers
        self._runs = runs
        self._patience = patience
        self._drains = False

    def __repr__(self) -> str:
        return f"<Probes of {sorted(self._workers)}{' draining' if self._drains else ''}>"

    def drain(self) -> None:
        """No more calls should come: it is about to end."""
        self._drains = True

    async def answer(self, path: str) -> tuple[int, str] | None:
        """The status and the sentence of a probe; None where the path is none."""
        if path == LIVE:
            ends = not (self._runs() or self._drains)
            why = "the parent process of the workers ended and is restarting" if ends else ""
        elif path == READY:
            why = await self._not_ready()
        else:
            return None
        return (503, why) if why else (200, "ok")

    async def _not_ready(self) -> str:
        if self._drains:
            return "draining: calls in flight finish, and no new calls should arrive"
        asked = (self._ask(name, path) for name, path in self._workers.items())
        return "; ".join(filter(None, await asyncio.gather(*asked)))

    async def _ask(self, name: str, path: Path) -> str:
        """What is wrong with a worker; empty when nothing is."""
        try:
            async with asyncio.timeout(self._patience), InternalConnection(path) as line:
                answer = await line.get(READY)
        except OSError:  # a timeout, too
            return f"{name} does not respond"
        return "" if answer.status == 200 else f"{name} {answer.body.decode('utf-8', 'replace')}"
