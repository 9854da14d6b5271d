"""Calls over a gRPC sender, in a process of its own, since gevent patches the standard library.

Reads a document of JSON from stdin: a lane, and rounds of calls, of which each begins when the last
has ended. Writes what the sender told of each call, in the order of their starts: outcome and
decision.
"""

import json
import sys
import time
from typing import Any

from gevent import monkey


def drive(lane: Any, rounds: list[int], *, most: int, timeout: float) -> list[tuple[str, str]]:
    """The whole run."""
    import gevent

    from serve.workbench.loadtest.engine.worker import grpc_sender

    sender = grpc_sender(lane, most=most, timeout=timeout, clock=time.perf_counter)

    def sweep() -> None:
        while True:
            gevent.sleep(0.02)
            sender.sweep(time.perf_counter())

    sweeper = gevent.spawn(sweep)
    told: list[tuple[str, str]] = []
    payloads = [lane.payloads[number % len(lane.payloads)] for number in range(sum(rounds))]
    for count in rounds:
        calls = [Call(sender, payloads.pop(0)) for _ in range(count)]
        told += [call.told.get(timeout=60.0) for call in calls]
    sweeper.kill()
    sender.close()
    gevent.sleep(0.05)
    return told


class Call:
    """One call; starting it from the hub, as timers do, shows that `send` does not block."""

    def __init__(self, sender: Any, payload: Any) -> None:
        from gevent import get_hub
        from gevent.event import AsyncResult, Event

        self.told = AsyncResult()
        self._is_taken = False
        sent = Event()

        def start() -> None:
            def done(outcome: str, decision: str, at: float) -> None:
                if self.told.ready() or not self._is_taken:
                    self.told = AsyncResult()
                    self.told.set(("told twice or too early", ""))
                else:
                    self.told.set((outcome, decision))

            self._is_taken = sender.send(payload, payload.body, done)
            sent.set()

        get_hub().loop.run_callback(start)
        sent.wait()


if __name__ == "__main__":
    monkey.patch_all()
    from serve.workbench.loadtest.plan import Lane

    asked = json.load(sys.stdin)
    print(json.dumps(drive(Lane.from_json(asked.pop("lane")), **asked)))
