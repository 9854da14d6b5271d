"""gRPC calls of a lane: unary ones as frames of our own, those over streams with grpcio."""

from __future__ import annotations

from collections.abc import Callable

from serve.workbench.loadtest.engine.grpc_unary import unary_sender
from serve.workbench.loadtest.engine.senders import Sender
from serve.workbench.loadtest.plan import Lane, LaneProtocol


def grpc_sender(lane: Lane, *, most: int, timeout: float, clock: Callable[[], float]) -> Sender:
    """The sender of a gRPC lane, with at most so many calls in flight. `timeout` is in seconds."""
    if lane.protocol is not LaneProtocol.GRPC_STREAM:
        return unary_sender(lane, most=most, timeout=timeout, clock=clock)
    from serve.workbench.loadtest.engine.grpc_stream import (
        StreamSender,  # grpcio, which is slow to import
    )

    return StreamSender(lane, most=most, timeout=timeout, clock=clock)
