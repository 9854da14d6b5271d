"""One worker of a run: connections to every lane, and the driver that makes its share of calls.

gRPC calls of a lane: unary ones as frames of our own, those over streams with grpcio.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable

import gevent

from serve.workbench.loadtest.engine.driver import run_plan
from serve.workbench.loadtest.engine.events import Tell
from serve.workbench.loadtest.engine.grpc_unary import unary_sender
from serve.workbench.loadtest.engine.http import http_sender
from serve.workbench.loadtest.engine.senders import Sender
from serve.workbench.loadtest.plan import Lane, LaneProtocol, LoadPlan
from serve.workbench.loadtest.record import RecordWindow

# --- gRPC calls of a lane -------------------------------------------------------------------------


def grpc_sender(lane: Lane, *, most: int, timeout: float, clock: Callable[[], float]) -> Sender:
    """The sender of a gRPC lane, with at most so many calls in flight. `timeout` is in seconds."""
    if lane.protocol is not LaneProtocol.GRPC_STREAM:
        return unary_sender(lane, most=most, timeout=timeout, clock=clock)
    from serve.workbench.loadtest.engine.grpc_stream import (
        StreamSender,  # grpcio, which is slow to import
    )

    return StreamSender(lane, most=most, timeout=timeout, clock=clock)


# --- one worker of a run --------------------------------------------------------------------------


_BESIDE = 100  # descriptors that are not connections


class LoadWorker:
    """Number `worker` of `workers`, ready to start; the clock is `time.monotonic`."""

    def __init__(self, plan: LoadPlan, *, worker: int, workers: int) -> None:
        self._plan = plan
        self._worker = worker
        self._workers = workers
        self._has_begun = False
        self._problem = _raise_limit(plan.most * len(plan.lanes) + _BESIDE)
        self._senders = [
            sender_of(lane, most=plan.most, timeout=plan.timeout) for lane in plan.lanes
        ]
        gc.collect()
        gc.freeze()  # bodies are never garbage: no collection has to look at them

    def __repr__(self) -> str:
        return f"<LoadWorker {self._worker} of {self._workers}>"

    def run(self, tell: Tell) -> None:
        """Make the calls, in a greenlet; returns when the last one has ended."""
        if self._problem:
            tell({"type": "problem", "text": self._problem})

        def begin() -> None:
            if not self._has_begun:
                self._has_begun = True
                tell({"type": "begun"})

        def begin_later() -> None:
            gevent.sleep(self._plan.warm_up)
            begin()

        def tell_window(second: int, window: RecordWindow) -> None:
            begin()  # a driver may be a moment faster
            tell({"type": "window", "second": second, **window.to_json()})

        beginning = gevent.spawn(begin_later)
        try:
            run_plan(
                self._plan,
                self._senders,
                worker=self._worker,
                workers=self._workers,
                tell=tell_window,
                clock=time.monotonic,
            )
        finally:
            beginning.kill()
            for each in self._senders:
                each.close()


def sender_of(
    lane: Lane, *, most: int, timeout: float, clock: Callable[[], float] = time.monotonic
) -> Sender:
    """The sender for a lane's protocol."""
    speaks_grpc = lane.protocol in (LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM)
    sender = grpc_sender if speaks_grpc else http_sender
    return sender(lane, most=most, timeout=timeout, clock=clock)


def _raise_limit(wanted: int) -> str:
    """Allow as many open connections as the system lets us; a problem where they may run out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, wanted)
    if soft < min(wanted, hard):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    if wanted <= hard:
        return ""
    return (
        f"a load generator process may open {hard} files, but the plan may need {wanted} "
        "connections"
    )
