"""Ports: taken by one gateway alone, at once after another run has ended; sockets for its owner."""

import contextlib
import socket
import stat
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from ports import LOOPBACK, free_ports

from serve.app.ports import inside, listener, reserve
from serve.core.errors import CannotStart

_TIME_WAIT = "06"
_REUSE = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@contextlib.contextmanager
def listening(port: int, *options: int, host: str = LOOPBACK) -> Iterator[socket.socket]:
    """Another program that listens there."""
    with socket.socket() as other:
        for option in options:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        other.bind((host, port))
        other.listen()
        yield other


def serve_one(accepting: socket.socket) -> socket.socket:
    """Accept a client, and close first, as a gateway does that stops; gives the client."""
    client = socket.create_connection(accepting.getsockname())
    accepting.accept()[0].close()
    assert client.recv(1) == b""
    return client


def states(port: int) -> set[str]:
    """The states of all connections of a port, as the kernel numbers them."""
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {row[3] for row in rows if row[1].endswith(f":{port:04X}")}


def test_a_port_is_free_for_the_next_gateway_while_old_connections_linger(port: int) -> None:
    for _ in range(2):  # the second time after a gateway that has itself begun so
        with reserve(LOOPBACK, port, "http-port"), listener(LOOPBACK, port) as first:
            first.listen()
            serve_one(first).close()
        assert _TIME_WAIT in states(port)
        with reserve(LOOPBACK, port, "http-port"), listener(LOOPBACK, port) as second:
            second.listen()
            serve_one(second).close()


def test_a_port_is_free_while_clients_have_not_closed_what_an_earlier_run_has(port: int) -> None:
    with listener(LOOPBACK, port) as first:
        first.listen()
        client = serve_one(first)
    with client, reserve(LOOPBACK, port, "http-port"), listener(LOOPBACK, port) as second:
        second.listen()
        serve_one(second).close()


def test_a_port_on_which_a_program_listens_is_refused() -> None:
    for host, options in product((LOOPBACK, "0.0.0.0"), ((), _REUSE[:1], _REUSE[1:], _REUSE)):
        with listening(0, *options, host=host) as other:
            port = other.getsockname()[1]
            with pytest.raises(CannotStart) as refused:
                reserve(LOOPBACK, port, "metrics-port")
        said = str(refused.value)
        assert f"port {port} on {LOOPBACK} cannot be used" in said, (host, options)
        assert "Address already in use" in said and "--metrics-port" in said


@pytest.mark.parametrize("lingers", [False, True])
def test_two_gateways_never_share_a_port(port: int, lingers: bool) -> None:
    """Neither before the first one's workers listen nor after, whatever lingers there."""
    if lingers:
        with listening(port, socket.SO_REUSEADDR) as earlier:
            serve_one(earlier).close()
        assert states(port) == {_TIME_WAIT}
    with reserve(LOOPBACK, port, "http-port"):
        for host in (LOOPBACK, "0.0.0.0"):
            with pytest.raises(CannotStart):
                reserve(host, port, "http-port")
        with listener(LOOPBACK, port) as worker, listener(LOOPBACK, port) as another:
            for one in (worker, another):
                one.listen()
                with pytest.raises(CannotStart):
                    reserve(LOOPBACK, port, "http-port")
    reserve(LOOPBACK, port, "http-port").close()


def test_a_reserved_port_takes_no_connection_from_its_listeners(port: int) -> None:
    with reserve(LOOPBACK, port, "http-port"):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port))
        with listener(LOOPBACK, port) as worker:
            worker.listen()
            for _ in range(8):
                serve_one(worker).close()


def test_a_socket_in_the_state_folder_is_for_its_owner_and_replaces_an_old_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "control.sock"
    for _ in range(2):
        with inside(path) as bound:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            bound.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
