"""What the program does, as others see it: the planes, started for real, and the questions it asks.

Each plane obeys another address of this machine's loopback, so that it is seen which setting a port
goes by. There is no Triton, and nobody to be discovered: a path that answers 503 is there as well.
Discovery runs against the fake API server, which remembers every request. Which ports it needs is
seen by leaving one out.
"""

import asyncio
import contextlib
import http.client
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fake_kubernetes import Asked, FakeApi
from harness import Program as Process
from harness import until
from ports import free_ports

from serve.admin.keda.service import KedaCall as Question
from serve.settings import Settings
from serve.triton.discovery.endpoints import Listing, read
from serve.triton.discovery.kubernetes import Cluster, EndpointSlices

Facts = Iterator[tuple[str, str, Any]]
_PORTS = ("http_port", "grpc_port", "metrics_port", "admin_port", "keda_port")
_HOSTS = {"proxy": ("host", "127.0.0.2"), "control": ("admin_host", "127.0.0.3")}
_WITHOUT_PATHS = ("grpc_port", "keda_port")
_PATIENCE = 10.0  # seconds; a bound


@dataclass(frozen=True, slots=True)
class Port:
    """A port that a command listens on: its number as long as nobody sets another."""

    number: int
    host: str  # the setting that says on which address


def planes(folder: Path, flags: Collection[str], asked: Collection[str]) -> Facts:
    """The facts of kind `port` and `path`. `flags` are the names of kind `flag`, `asked` paths."""
    numbers = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    control = f"http://{_HOSTS['control'][1]}:{numbers['admin_port']}"
    own = {"control": ("--triton", "127.0.0.1:1:1:1"), "proxy": ("--control", control)}
    secret = {"SERVEGATE_SECRET": "a-secret-of-two-and-thirty-signs"}
    with contextlib.ExitStack() as stack:
        for command, words in own.items():
            host, address = _HOSTS[command]
            ports = {one: numbers[one] for one in _PORTS if f"{command} {_dashed(one)}" in flags}
            more = [word for one in ports for word in (_dashed(one), str(ports[one]))]
            state = ("--state", str(folder / command), _dashed(host), address)
            process = Process(command, *words, *state, *more, cwd=folder, env=secret)
            stack.callback(process.stop)
            for setting, number in ports.items():
                until(partial(_listens, address, number), what=f"{command} {setting}")
                yield "port", f"{command} {setting}", Port(getattr(Settings(), setting), host)
                for path in () if setting in _WITHOUT_PATHS else sorted(asked):
                    status = _status(address, number, path)
                    if status != 404:
                        yield "path", f"{command} {setting} {path}", f"status {status}"


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=_PATIENCE):
        return True
    return False


def _status(host: str, port: int, path: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"host": f"localhost:{port}"})
        return connection.getresponse().status


def _dashed(setting: str) -> str:
    return "--" + setting.replace("_", "-")


class _Deaf:
    """A listener that does nothing."""

    def told(self, listing: Listing) -> None: ...

    def well(self) -> None: ...

    def failed(self, error: Exception) -> None: ...


def discovery() -> Facts:
    """Rights that discovery needs, the label that it chooses by, and the ports that it wants."""
    for asked in asyncio.run(_asked()):
        # /apis/GROUP/VERSION/namespaces/NAME/RESOURCE/NAME, or without a group
        parts = asked.path.strip("/").split("/")
        resource, *name = parts[parts.index("namespaces") + 2 :]
        verb = "watch" if asked.is_watch else "get" if name else "list"
        yield "asks", f"{verb} {resource}", parts[1] if parts[0] == "apis" else ""
        yield "word", "pool label", asked.query["labelSelector"]
    candidates = [name.removesuffix("_port") for name in _PORTS]
    for port in candidates:
        if read([_slice(*(one for one in candidates if one != port))]).problems:
            yield "endpoint port", port, "needed"


def keda(asked: Collection[str]) -> Facts:
    """Which of these entries of a trigger's metadata change the question, and how."""
    nothing = _question({})
    for name in asked:
        question = _question({name: "-"})
        if question != nothing:
            yield "keda", name, "pool" if question.pool != nothing.pool else "credential"


async def _asked() -> list[Asked]:
    async with FakeApi() as api:
        source = EndpointSlices(Cluster(api.url, "servegate"))
        running = asyncio.create_task(source.run(_Deaf()))
        await api.asked(2)  # a list, and a watch
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return list(api.requests)


def _slice(*ports: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "one"},
        "addressType": "IPv4",
        "ports": [{"name": name, "port": 8000, "protocol": "TCP"} for name in ports],
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    }


def _question(metadata: dict[str, str]) -> Question:
    request = SimpleNamespace(scalerMetadata=metadata, metricName="")
    context = SimpleNamespace(invocation_metadata=lambda: ())
    return Question.of(request, context)
