"""One run on many processes and machines, by locust's own master, workers and messages.

    worker                                 master
      servegate-hello   ───────────────▶     until all that are expected are there
      servegate-plan    ◀───────────────     the whole plan, with the worker's number
      servegate-event   ───────────────▶     ready
      servegate-start   ◀───────────────     to all, once all are ready
      servegate-event   ───────────────▶     begun, window, problem, ended, failed
      servegate-end     ◀───────────────     whatever happened, with the reason

Of locust there is the transport, and the heartbeats of both sides; users and statistics are not in
use. A heartbeat that comes late because a worker is busy is forgiven up to `SILENCE`: locust's own
limit is four seconds, after which it counts a worker as missing, and forgives when it comes back.
All workers start a moment after the last word before it, so no clock is compared with another.
"""

import os
import socket
from typing import Any

from serve import __version__

HELLO, PLAN, START, EVENT, END = (
    f"servegate-{name}" for name in ("hello", "plan", "start", "event", "end")
)
SILENCE = 15.0  # seconds without a sign of life
TURN = 0.25  # seconds between two looks at who lives


def greeting(token: str) -> dict[str, Any]:
    """What a worker says of itself. `token`: what its master has given it, or nothing."""
    host, pid = socket.gethostname(), os.getpid()
    return {"version": __version__, "token": token, "host": host, "pid": pid}
