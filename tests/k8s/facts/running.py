"""Both planes, started for real: on which ports they listen, and which paths answer there.

Each obeys another address of this machine's loopback, so that it is seen which setting a port goes
by. There is no Triton, and nobody to be discovered: a path that answers 503 is there as well.
"""

import contextlib
import http.client
import socket
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import Program as Process
from harness import until
from k8s.facts.program import Port
from ports import free_ports

from serve.settings import Settings

_PORTS = ("http_port", "grpc_port", "metrics_port", "admin_port", "keda_port")
_HOSTS = {"proxy": ("host", "127.0.0.2"), "control": ("admin_host", "127.0.0.3")}
_WITHOUT_PATHS = ("grpc_port", "keda_port")
_PATIENCE = 10.0  # seconds; a bound


def seen(
    folder: Path, flags: Collection[str], asked: Collection[str]
) -> Iterator[tuple[str, str, Any]]:
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
    try:
        connection.request("GET", path, headers={"host": f"localhost:{port}"})
        return connection.getresponse().status
    finally:
        connection.close()


def _dashed(setting: str) -> str:
    return "--" + setting.replace("_", "-")
