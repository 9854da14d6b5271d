"""The seam between what decides when calls start and what makes them.

Everything here runs in gevent's hub: nothing may block, and `done` is called from the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from serve.workbench.loadtest.plan import Payload

Done = Callable[[str, str, float], None]
"""How a call ended: its outcome, its decision (see `recording.Key`), and when by the clock."""


class Sender(Protocol):
    """One lane's connections to its target."""

    def send(self, payload: Payload, body: bytes, done: Done) -> bool:
        """Start a call now. False: as many as allowed are in flight, and nothing was sent.

        `body` is the payload's own, or one of the same length with a sequence's id in it. `done`
        is called exactly once for a call that was started, never before `send` has returned. The
        call's place is free by then: `send` may be called from it.
        """
        ...

    def sweep(self, now: float) -> None:
        """End the calls that are over their time; asked every 50 ms or so."""
        ...

    def close(self) -> None:
        """Close everything. Calls in flight are not told any more."""
        ...
