"""Tritons announced by a fake Kubernetes API server, which lives in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from endpoint_slices import NAMESPACE, endpoint_slice, pod
from fake_kubernetes import FakeApi
from fleets import Machine

from serve.core.replicas import Replica

PATIENCE = 30.0  # seconds


class Cluster:
    """An API server inside a `with` block, which may go away and come back on the same port.

    Each machine is a pod and has a slice of its own, because its ports are its own.
    """

    def __init__(self) -> None:
        self.api = FakeApi()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Cluster":
        self._thread.start()
        self.come_back()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.go_away()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    @property
    def flag(self) -> str:
        return f"kubernetes={self.api.url}/{NAMESPACE}"

    def come_back(self) -> None:
        """It serves what it had."""
        self._run(self.api.__aenter__())

    def go_away(self) -> None:
        """Nobody listens there any more, and all watches are broken."""
        self._run(self.api.__aexit__(None, None, None))

    def announce(self, *machines: Machine, terminating: bool = False) -> None:
        for one in machines:
            replica = Replica.named(one.flag)
            ports = {
                "http": replica.http_port,
                "grpc": replica.grpc_port,
                "metrics": replica.metrics_port,
            }
            said = pod(
                one.name, replica.host, serving=not terminating, terminating=terminating or None
            )
            slice_ = endpoint_slice(said, pool=one.pool, ports=ports, name=f"triton-{one.name}")
            self.do(lambda api, slice_=slice_: api.put(slice_))

    def withdraw(self, *machines: Machine) -> None:
        for one in machines:
            name = f"triton-{one.name}"
            self.do(lambda api, name=name: api.delete("EndpointSlice", NAMESPACE, name))

    def do(self, what: Callable[[FakeApi], Any]) -> Any:
        """Something with the API server, in its own thread."""

        async def work() -> Any:
            return what(self.api)

        return self._run(work())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)
