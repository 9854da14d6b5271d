"""Signals and listening sockets: what a parent prepares before its children need it."""

import asyncio
import signal
import socket

from serve.core.errors import CannotStart


def stop_on_signals() -> asyncio.Event:
    """An event that SIGINT or SIGTERM sets, in the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def reserve(host: str, port: int, flag: str) -> socket.socket:
    """Make sure that nobody listens on the port, and keep it for sockets of this user.

    The socket that comes back is bound with SO_REUSEPORT but does not listen: workers bind beside
    it. It lacks SO_REUSEADDR, so that the probe of another Servegate finds the port taken even
    before anybody listens. `CannotStart` names the flag when the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CannotStart(
                f"port {port} on {host} cannot be used",
                why=error.strerror or str(error),
                try_this=f"--{flag} with a free port, or stop what listens there",
            ) from error
    try:
        return listener(host, port, socket.SO_REUSEPORT)
    except OSError:  # connections of a program that has ended still linger on the port
        return listener(host, port, socket.SO_REUSEPORT, socket.SO_REUSEADDR)


def listener(host: str, port: int, *options: int) -> socket.socket:
    """A bound TCP socket with these socket options; it does not yet listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
