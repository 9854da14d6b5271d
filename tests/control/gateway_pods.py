"""Gateways at several addresses of one port, as far as their metrics port goes: real servers."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

from serve.control.live import gateway_reading
from serve.wire.prometheus import samples

WHERE = ("m", "1", "http")
OF_CALL = 'code="200",model="m",protocol="http",route="split",verb="infer",version="1"'
IN_FLIGHT = {
    "servegate_calls_in_flight": "",
    "servegate_model_calls_in_flight": 'model="m",',
    "servegate_replica_calls_in_flight": 'pool="default",replica="a",',
}


class Pod:
    """One gateway. What it tells is as it stands here at that moment.

    `started` tells its life; without workers nobody tells the calls in flight. `holds` is waited
    for before each answer; it is set, unless a test clears it.
    """

    def __init__(self, address: str, *, calls: float = 0.0, in_flight: float = 0.0) -> None:
        self.address = address
        self.calls, self.in_flight = calls, in_flight
        self.started = 1000.0
        self.has_workers = True
        self.says = ""  # instead of its metrics
        self.holds = asyncio.Event()
        self.holds.set()
        self.hosts: list[str] = []  # of the questions
        self._runner: web.AppRunner | None = None

    def text(self) -> str:
        """What it tells, as the real one does, in the parts that matter here."""
        lines = [
            "# HELP servegate_calls_total Calls",
            "# TYPE servegate_calls_total counter",
            f"servegate_calls_total{{{OF_CALL}}} {self.calls}",
        ]
        for name, labels in IN_FLIGHT.items():
            lines.append(f"# TYPE {name} gauge")
            if self.has_workers:
                lines.append(f'{name}{{{labels}source="worker-0"}} {self.in_flight}')
        lines += [
            "# TYPE servegate_process_start_time_seconds gauge",
            f'servegate_process_start_time_seconds{{source="supervisor"}} {self.started}',
            f'servegate_process_start_time_seconds{{source="worker-0"}} {self.started + 1}',
            "",
        ]
        return self.says or "\n".join(lines)

    async def start(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen."""
        application = web.Application()
        application.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.address, port, ssl_context=tls).start()

    async def stop(self) -> None:
        """Listen no more; connections end."""
        if self._runner is not None:
            self.holds.set()
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        self.hosts.append(request.headers["host"])
        await self.holds.wait()
        return web.Response(text=self.text())


@contextlib.asynccontextmanager
async def running(
    port: int, *pods: Pod, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Pod, ...]]:
    """All of them listen, inside the block."""
    try:
        for pod in pods:
            await pod.start(port, tls)
        yield pods
    finally:
        for pod in pods:
            await pod.stop()


class Told:
    """One text, as those read it who need it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.reading = gateway_reading.read(text)

    @property
    def calls(self) -> float:
        return self.reading.calls[WHERE]

    @property
    def in_flight(self) -> float | None:
        return self.reading.in_flight

    @property
    def sources(self) -> set[str]:
        name = "servegate_process_start_time_seconds"
        return {one.labels["source"] for one in samples(self.text, (name,))}
