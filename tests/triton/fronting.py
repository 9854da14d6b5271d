"""A whole worker of the gateway, on ports of its own, in front of Tritons that a test has started.

The worker runs in a thread and serves the snapshot that lies in its state folder; there is no
control plane behind it. Clients run in the threads of the tests, as programs of their own would.

    client ── HTTP or gRPC ──▶ Worker ──▶ one BareTriton, or two
"""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import uvloop
from builders import target, view
from harness import until
from ports import free_ports

from serve.app.paths import SNAPSHOT_FILE
from serve.app.worker import ProxyWorker
from serve.core.replicas import Replica
from serve.core.snapshot import ModelView, Snapshot
from serve.settings import Settings

if TYPE_CHECKING:
    from .conftest import BareTriton

PATIENCE = 30.0  # seconds; a bound


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the Python backend. `split` is its route, as in `view`."""

    name: str
    code: str
    config: str
    versions: tuple[int, ...] = (1,)
    split: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def write(self, repository: Path) -> None:
        """The model's folder, in Triton's layout."""
        for version in self.versions:
            folder = repository / self.name / str(version)
            folder.mkdir(parents=True)
            (folder / "model.py").write_text(self.code)
        for name, text in {"config.pbtxt": self.config, **self.files}.items():
            (repository / self.name / name).write_text(text)

    def seen(self, replicas: Sequence[str]) -> ModelView:
        """What the gateway knows of it."""
        targets = (target(version, *replicas, model=self.name) for version in self.versions)
        stateful = "sequence_batching" in self.config
        return view(*targets, name=self.name, split=self.split, sequences=stateful)


@dataclass(frozen=True, slots=True)
class Front:
    """A running worker: where clients reach it, and its own numbers."""

    http: str  # host:port
    grpc: str
    worker: ProxyWorker

    @property
    def calls(self) -> float:
        """Calls in flight, on both protocols."""
        return self.worker.registry.get_sample_value("servegate_calls_in_flight") or 0.0

    def wait_idle(self) -> None:
        """Until no call is in flight."""
        until(lambda: not self.calls, PATIENCE, lambda: f"{self.calls} calls stay in flight")


@contextlib.contextmanager
def front(state: Path, tritons: Sequence["BareTriton"], models: Sequence[Model]) -> Iterator[Front]:
    """A worker in front of these Tritons, which hold these models; at the end it is idle."""
    http, grpc = free_ports(2)
    names = "abc"[: len(tritons)]
    replicas = {name: _placed(name, one) for name, one in zip(names, tritons, strict=True)}
    seen = {model.name: model.seen(names) for model in models}
    snapshot = Snapshot(1, MappingProxyType(seen), MappingProxyType(replicas))
    state.mkdir(exist_ok=True)
    (state / SNAPSHOT_FILE).write_text(json.dumps(snapshot.to_json()))
    settings = Settings(
        state=str(state), http_port=http, grpc_port=grpc, admin_port=free_ports(1)[0], access_log=""
    )
    with _running(settings) as worker:
        until(lambda: _is_open(http) and _is_open(grpc), PATIENCE)
        made = Front(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", worker)
        yield made
        made.wait_idle()


@contextlib.contextmanager
def _running(settings: Settings) -> Iterator[ProxyWorker]:
    """The worker in a loop and a thread of its own."""
    worker = ProxyWorker(settings, 0, secret="unused")
    stop = asyncio.Event()
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(worker.run(stop),))
    thread.start()
    try:
        yield worker
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the worker does not stop"
        loop.close()


def _placed(name: str, triton: "BareTriton") -> Replica:
    http, grpc = (int(address.rpartition(":")[2]) for address in (triton.http, triton.grpc))
    return Replica(name, "127.0.0.1", http, grpc, 1)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))
