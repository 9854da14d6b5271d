"""The scene of a simulated fleet: fakes of Triton and Kubernetes, and real Servegate processes.

FakeApi (this process)  ──EndpointSlices──▶  servegate control  ──snapshots──▶  servegate proxy × n
fleet_fakes (1 process) ◀──────model control, statistics, metrics────┘           (one worker each)
"""

import asyncio
import contextlib
import functools
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from fake_kubernetes import FakeApi

from loadtests.bench import accounting
from loadtests.bench.fleet_cluster import NAMESPACE, Cluster
from loadtests.bench.fleet_planes import LABEL, Planes
from loadtests.bench.start import BIN, free_ports
from loadtests.bench.started import Programs, listening

SECRET = "a-simulated-fleet"


@dataclass(frozen=True, slots=True)
class Ports:
    """Of the fakes and the control plane; the data planes have three each."""

    grpc: int
    metrics: int
    orders: int
    http: int  # nobody listens there: the fakes answer no calls
    admin: int
    planes: tuple[int, ...]


def write_models(folder: Path, count: int) -> tuple[tuple[str, int], ...]:
    """A plain repository; gives its versions. The first model has two, the others one."""
    found = []
    for number in range(count):
        name, versions = f"model-{number:03}", (1, 2) if number == 0 else (1,)
        for version in versions:
            (folder / name / str(version)).mkdir(parents=True)
            (folder / name / str(version) / "model.fake").touch()
            found.append((name, version))
        config = 'backend: "fake"\nmax_batch_size: 8\nversion_policy { all { } }\n'
        (folder / name / "config.pbtxt").write_text(config)
    return tuple(found)


class Fakes:
    """Gives orders to the process of the fakes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def order(self, **order: Any) -> Mapping[str, Any]:
        """See `fleet_fakes`."""
        self._writer.write(json.dumps(order).encode() + b"\n")
        return dict(json.loads(await self._reader.readline()))


class Scene:
    """Everything that runs; `control` is started for each size anew."""

    def __init__(self, folder: Path, programs: Programs, ports: Ports, models: int) -> None:
        self.folder = folder
        self.ports = ports
        self.targets = write_models(folder / "models", models)
        self._programs = programs
        self._control: subprocess.Popen[bytes] | None = None
        self._round = 0
        self.environment = {
            **{
                name: text for name, text in os.environ.items() if not name.startswith("SERVEGATE_")
            },
            "SERVEGATE_SECRET": SECRET,
            "SERVEGATE_LOG_LEVEL": "error",
            "SERVEGATE_ACCESS_LOG": "",
        }

    @property
    def control(self) -> int:
        """The process of the control plane."""
        assert self._control is not None
        return self._control.pid

    def process(self, name: str) -> int:
        """A process by its name."""
        return self._programs.processes[name].pid

    def start_fakes(self) -> None:
        """The fake Tritons."""
        ports = self.ports
        argv = (
            *(str(BIN / "python"), "-m", "loadtests.bench.fleet_fakes"),
            *("--grpc", str(ports.grpc), "--metrics", str(ports.metrics)),
            *("--orders", str(ports.orders)),
        )
        fakes = self._programs.start("fakes", argv)
        self._programs.wait("fakes", fakes, lambda: listening(ports.orders))

    def start_planes(self, count: int) -> Planes:
        """So many data planes of one worker."""
        folders, started = [], []
        for number in range(count):
            http, grpc, metrics = self.ports.planes[3 * number : 3 * number + 3]
            folders.append(self.folder / f"plane-{number}")
            argv = (
                *(str(BIN / "servegate"), "proxy", "--state", str(folders[-1])),
                *("--control", f"http://127.0.0.1:{self.ports.admin}", "--workers", "1"),
                *("--http-port", str(http), "--grpc-port", str(grpc)),
                *("--metrics-port", str(metrics)),
            )
            name = f"plane-{number}"
            plane = self._programs.start(name, argv, self.environment)
            started.append((name, plane, (http, grpc)))
        for name, plane, ports in started:
            self._programs.wait(name, plane, functools.partial(listening, *ports))
        return Planes(folders, self.check)

    def start_control(self, api: str) -> None:
        """A control plane that knows nothing yet; the one before has to be stopped."""
        self._round += 1
        http, grpc, metrics = (f"http://127.0.0.1:{port}" for port in self.ports.planes[:3])
        argv = (
            *(str(BIN / "servegate"), "control"),
            *("--state", str(self.folder / f"control-{self._round}")),
            *("--model-repo", str(self.folder / "models")),
            *("--admin-port", str(self.ports.admin)),
            *("--discover", f"kubernetes={api}/{NAMESPACE}"),
        )
        environment = self.environment | {"SERVEGATE_GATEWAY": f"{http},{grpc},{metrics}"}
        self._control = self._programs.start("control", argv, environment)

    def stop_control(self) -> None:
        """As an upgrade does."""
        if self._control is not None:
            self._control.terminate()
            self._control.wait(30)
            self._control = None

    def check(self) -> None:
        """`RuntimeError` with its last words when the control plane has ended."""
        if self._control is not None and self._control.poll() is not None:
            said = (self.folder / "control.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the control plane exited:\n{said}")

    def cpu(self, pid: int) -> float:
        """CPU seconds of a process and its children."""
        used = accounting.cpu(pid)
        return used.workers + used.supervisors

    def memory(self, pid: int) -> float:
        """MiB of the processes below this one that carry the work (PSS)."""
        return accounting.memory(accounting.tree(pid).workers)

    async def move_label(self, version: int) -> None:
        """As `servegate label set` does."""
        url = f"http://127.0.0.1:{self.ports.admin}/api/models/model-000/labels/{LABEL}?wait=0"
        async with (
            aiohttp.ClientSession() as session,
            session.put(url, json={"version": version}) as answer,
        ):
            if answer.status != 200:
                raise RuntimeError(f"the label did not move: {await answer.text()}")


@contextlib.asynccontextmanager
async def scene(folder: Path, *, models: int, planes: int) -> AsyncIterator[tuple[Any, ...]]:
    """The scene, its data planes, the fakes and the cluster, until the block is left."""
    grpc, metrics, orders, http, admin, *others = free_ports(5 + 3 * planes)
    ports = Ports(grpc, metrics, orders, http, admin, tuple(others))
    with Programs(folder) as programs:
        one = Scene(folder, programs, ports, models)
        one.start_fakes()
        async with FakeApi() as api:
            named = {"http": http, "grpc": grpc, "metrics": metrics}
            cluster = Cluster(api, named)
            reader, writer = await asyncio.open_connection("127.0.0.1", orders)
            running = one.start_planes(planes)
            try:
                yield one, running, Fakes(reader, writer), cluster, api
            finally:
                one.stop_control()
                writer.close()
