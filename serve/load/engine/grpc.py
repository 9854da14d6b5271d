"""gRPC calls with grpcio under gevent. What is measured is what a client in Python has.

The standard library must be patched (`gevent.monkey.patch_all`, which locust does) before this
module is imported. Metadata and timeouts are grpcio's; see `grpc_channels` for what is not.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from serve.load.checking import checker
from serve.load.engine.grpc_channels import Line, lines, metadata_of
from serve.load.engine.grpc_outcomes import decision_of, outcome_of
from serve.load.engine.grpc_stream import StreamSender
from serve.load.engine.sending import Done, Sender
from serve.load.plan import Lane, Payload, Protocol
from serve.load.recording import TIMED_OUT

_GRACE = 1.0  # seconds behind its deadline after which grpcio is not waited for any more


def grpc_sender(lane: Lane, *, most: int, timeout: float, clock: Callable[[], float]) -> Sender:
    """The sender of a gRPC lane, with at most so many calls in flight. `timeout` is in seconds."""
    kind = StreamSender if lane.protocol is Protocol.GRPC_STREAM else UnarySender
    return kind(lane, most=most, timeout=timeout, clock=clock)


class _Call:
    """A call that has been asked for. `answer` is grpcio's future, None until it is started."""

    __slots__ = ("answer", "body", "done", "line", "payload", "started")

    def __init__(
        self, payload: Payload, body: bytes, done: Done, line: Line, started: float
    ) -> None:
        self.payload = payload
        self.body = body
        self.done = done
        self.line = line
        self.started = started
        self.answer: Any = None

    def __repr__(self) -> str:
        return f"<Call of {len(self.body)} bytes{'' if self.answer else ', not started'}>"


class UnarySender:
    """ModelInfer, any number of calls at once over a few channels."""

    def __init__(
        self, lane: Lane, *, most: int, timeout: float, clock: Callable[[], float]
    ) -> None:
        self._lines = lines(lane, most, lambda channel: channel.unary_unary(lane.path))
        self._turns = itertools.cycle(self._lines)
        self._metadata = metadata_of(lane)
        self._check = checker(lane)
        self._most = most
        self._timeout = timeout
        self._clock = clock
        self._open: dict[_Call, None] = {}  # in the order of their starts
        self._inbox: deque[_Call] = deque()
        self._wake = Event()
        self._starter = gevent.spawn(self._start_all)

    def __repr__(self) -> str:
        return f"<UnarySender with {len(self._open)} of {self._most} calls in flight>"

    def send(self, payload: Payload, body: bytes, done: Done) -> bool:
        """See `Sender`."""
        if len(self._open) >= self._most:
            return False
        call = _Call(payload, body, done, next(self._turns), self._clock())
        self._open[call] = None
        self._inbox.append(call)
        self._wake.set()
        return True

    def sweep(self, now: float) -> None:
        """A net: usually grpcio ends calls by their deadline. See `Sender`."""
        latest = now - self._timeout - _GRACE
        late = list(itertools.takewhile(lambda call: call.started < latest, self._open))
        for call in late:
            del self._open[call]
            if call.answer is not None:
                gevent.spawn(call.answer.cancel)
            call.done(TIMED_OUT, "", now)

    def close(self) -> None:
        """Forget the calls in flight; each channel is closed when the last call on it has ended."""
        self._open.clear()
        self._inbox.clear()
        self._starter.kill(block=False)
        for line in self._lines:
            line.close()

    def _start_all(self) -> None:
        while True:
            while self._inbox:
                self._start(self._inbox.popleft())
            self._wake.clear()
            self._wake.wait()

    def _start(self, call: _Call) -> None:
        if call not in self._open:
            return  # too late: it has been swept away
        call.line.enter()
        call.answer = call.line.call.future(call.body, self._timeout, self._metadata)
        call.answer.add_done_callback(lambda answer: self._ended(call, answer))

    def _ended(self, call: _Call, answer: Any) -> None:
        now = self._clock()
        call.line.leave()
        if self._open.pop(call, call) is call:
            return  # swept away, or the sender is closed
        trailing = answer.trailing_metadata()
        if answer.exception() is None:
            body = answer.result()
            outcome = self._check(call.payload, body, None)
            call.done(outcome, decision_of(trailing, body), now)
        else:
            call.done(outcome_of(answer), decision_of(trailing, None), now)
