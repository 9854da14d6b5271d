"""Ports for servers of tests, of which several processes of pytest start some at the same time.

A port that is found free and bound a second later may be somebody else's by then. So each process
has a range of its own, goes through it in order, and none touches what `serve.triton.ports` or the
kernel choose.
"""

import itertools
import os
import socket

from serve.triton.ports import LOOPBACK, LOWEST

_FIRST = 10_000
_ROOM = (LOWEST - _FIRST) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_candidates = itertools.cycle(range(_FIRST + _WORKER * _ROOM, _FIRST + (_WORKER + 1) * _ROOM))


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment, and that no other test will be given soon."""
    return list(itertools.islice(filter(_is_free, _candidates), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
