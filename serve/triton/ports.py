"""Free loopback ports that stay free while their server is away.

The kernel takes the local ports of outgoing connections from its ephemeral range. A listening port
in that range can be lost for good while its server restarts: some connection gets it as its local
port; a client that keeps trying the dead port may even connect to itself. So ports are taken from
below the range.
"""

import socket
from collections.abc import Callable, Container
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 15000  # below are the well-known ports of servers

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def free_ports(
    count: int,
    draw: Callable[[], float],
    *,
    besides: Container[int] = (),
    ephemeral: int | None = None,
) -> list[int]:
    """So many different ports that nobody listens on now, and that are none of `besides`.

    `draw` gives random numbers in [0, 1); `ephemeral` is the first port of the kernel's range. If
    there is no room below the range, or all drawn ports are taken, the kernel chooses.
    """
    first = _first_ephemeral() if ephemeral is None else ephemeral
    room = max(0, first - LOWEST)
    with ExitStack() as held:  # a port that is held is not found free a second time
        ports: list[int] = []
        for attempt in range(_TRIES + count):
            if len(ports) == count:
                break
            chosen = LOWEST + int(draw() * room) if room and attempt < _TRIES else 0
            listener = held.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, chosen))
            except OSError:
                continue
            port = listener.getsockname()[1]
            if port not in besides:
                ports.append(port)
        return ports


def _first_ephemeral() -> int:
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768  # the kernel's own default
