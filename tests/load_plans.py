"""Plans for a `ModelServer`, and the processes that a load test starts from here."""

import os
from pathlib import Path

from serve.load.plan import Arrivals, Lane, Payload, Plan, Protocol, Shape, Spacing
from serve.processes.table import rows

PAYLOAD = Payload(b'{"inputs":[]}', (("Content-Type", "application/json"),))


def plan_of(
    address: str, *, rate: float = 100.0, seconds: float = 1.0, warm_up: float = 0.0
) -> Plan:
    """Calls at even steps, over HTTP with JSON."""
    lane = Lane("http", Protocol.HTTP_JSON, address, "/v2/models/m/infer", (PAYLOAD,))
    arrivals = Arrivals(rate, Shape.CONSTANT, Spacing.EVEN)
    return Plan((lane,), seconds, arrivals, timeout=5.0, warm_up=warm_up)


def generators() -> list[int]:
    """The child processes of this one that make calls, and their workers, by their numbers."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    heads = [int(one) for one in children if _is_generator(int(one))]
    return [row.pid for row in rows() if row.session in heads and not row.is_zombie]


def _is_generator(pid: int) -> bool:
    try:
        return b"serve.load.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
