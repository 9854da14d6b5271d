"""Signals and listening sockets: what a parent prepares before its children need it."""

import asyncio
import os
import signal
import socket
from pathlib import Path

from serve.core.errors import CannotStart

BACKLOG = 2048  # connections that the kernel keeps while a worker is too busy to accept them


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT or SIGTERM sets, in the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def reserve(host: str, port: int, flag: str) -> socket.socket:
    """Claim a port for one gateway: `listener` binds to it while the claim is open.

    `CannotStart` names the flag when a program listens there, or another gateway has claimed it.
    Connections that an earlier run has left behind do not matter.
    """
    claim = _tcp(host)
    try:
        # With SO_REUSEADDR the kernel ignores old connections, and refuses a second listener.
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claim.bind((host, port))
        claim.listen()
    except OSError as error:
        claim.close()
        raise CannotStart(
            f"port {port} on {host} cannot be used",
            why=error.strerror or str(error),
            try_this=f"pass --{flag} with a free port, or stop the program that uses this one",
        ) from error
    # From here on our listeners may bind to it, thanks to SO_REUSEPORT, and no other claim can.
    claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    claim.shutdown(socket.SHUT_RDWR)  # it listens no more, and stays bound
    return claim


def listener(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not yet listen: one of several of this user on the port.

    Connections inherit both options. One that lingers in TIME_WAIT keeps the port from those that
    lack any of its options, so every listener has to set both.
    """
    bound = _tcp(host)
    try:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def inside(path: Path) -> socket.socket:
    """A bound Unix socket, for this user alone, in place of one that an earlier run has left."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(bound.fileno(), 0o600)  # before the file is there: Linux gives it this mode
        bound.bind(str(path))
    except OSError:
        bound.close()
        raise
    return bound


def _tcp(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
