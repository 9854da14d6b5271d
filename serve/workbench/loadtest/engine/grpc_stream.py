"""ModelStreamInfer: streams that stay open, on each of them one call after the other.

A call takes an idle stream, or opens one while there are fewer than calls may be in flight. Its
answer is known by the `id` that every request is given, so that further answers of a decoupled
model's earlier call are passed over. A call ends with its first answer; or, if the requests ask
for `triton_enable_empty_final_response`, with the one that says `triton_final_response`, and the
first one is what is checked. An `error_message` in the stream ends the call, not the stream.

Streams have no deadlines: `sweep` ends calls by cancelling their streams. A stream that has ended
is opened again by the next call. What answered is known by the answer alone: over a stream that
many versions may serve the gateway sends no `servegate-version`.

What the end of a stream of grpcio means: the outcome of the call on it.

| grpcio's code      | its details           | `servegate-error` | outcome              |
|--------------------|-----------------------|-------------------|----------------------|
| `DEADLINE_…`       |                       | none              | `timeout`            |
| any                | no connection         | none              | `connect`            |
| any                | the connection broke  | none              | `reset`              |
| any                | the server's own      | none              | `grpc_<CODE>`        |
| any                |                       | a code            | `grpc_<CODE>:<code>` |

grpcio makes statuses up for what happens to a connection, and only its words tell them from a
server's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import gevent
import grpc
from gevent.queue import SimpleQueue

from serve.core.errors import BadRequest
from serve.wire import protobuf
from serve.workbench.loadtest.answer_checks import checker
from serve.workbench.loadtest.engine.grpc_answers import version_of
from serve.workbench.loadtest.engine.grpc_channels import ChannelUse, lines
from serve.workbench.loadtest.engine.grpc_requests import Metadata, metadata_of
from serve.workbench.loadtest.engine.senders import Done
from serve.workbench.loadtest.plan import Lane, Payload
from serve.workbench.loadtest.record import BROKEN, MALFORMED, NOT_CONNECTED, TIMED_OUT

# --- what the end of a stream of grpcio means -----------------------------------------------------


_ERROR_CODE = "servegate-error"
_UNREACHED = re.compile(
    r"failed to connect|errors? resolving|resolution fail|name resolution", re.IGNORECASE
)
_LOST = re.compile(
    r"^stream removed|socket closed|connection reset|broken pipe|recvmsg|sendmsg|goaway"
    r"|rst_stream|transport closed|keepalive",
    re.IGNORECASE,
)


def outcome_of(call: Any) -> str:
    """The outcome of a call that has failed: what grpcio raised, or a stream that is over."""
    code: grpc.StatusCode = call.code()
    told = _value(call.trailing_metadata(), _ERROR_CODE)
    if told:
        return f"grpc_{code.name}:{told}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TIMED_OUT
    details = call.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and _UNREACHED.search(details):
        return NOT_CONNECTED
    return BROKEN if _LOST.search(details) else f"grpc_{code.name}"


def _value(metadata: Iterable[tuple[str, Any]] | None, key: str) -> str:
    for name, value in metadata or ():
        if name == key:
            return str(value)
    return ""


# --- modelStreamInfer -----------------------------------------------------------------------------


STREAM_ERROR = "stream_error"
_FINAL = b"triton_final_response"
_WANTS_FINAL = b"triton_enable_empty_final_response"
_ERROR_MESSAGE, _ANSWER = 1, 2  # fields of ModelStreamInferResponse
_ID, _PARAMETERS = 3, 4  # fields of ModelInferRequest and ModelInferResponse
_TRUE = protobuf.boolean(1, True)  # InferParameter


class _Call:
    """A call that has been asked for, on its stream."""

    __slots__ = ("body", "done", "payload", "slot", "started")

    def __init__(
        self, payload: Payload, body: bytes, done: Done, slot: _Slot, started: float
    ) -> None:
        self.payload = payload
        self.body = body
        self.done = done
        self.slot = slot
        self.started = started

    def __repr__(self) -> str:
        return f"<Call of {len(self.body)} bytes on a stream>"


class StreamSender:
    """Any number of streams over a few channels; as many calls as there are streams."""

    def __init__(
        self, lane: Lane, *, most: int, timeout: float, clock: Callable[[], float]
    ) -> None:
        self._lines = lines(lane, most, lambda channel: channel.stream_stream(lane.path))
        self._turns = itertools.cycle(self._lines)
        self._metadata = metadata_of(lane)
        self._wants_final = any(_WANTS_FINAL in one.body for one in lane.payloads)
        self._check = checker(lane)
        self._most = most
        self._timeout = timeout
        self._clock = clock
        self._open: dict[_Call, None] = {}  # in the order of their starts
        self._slots: list[_Slot] = []
        self._idle: list[_Slot] = []

    def __repr__(self) -> str:
        return f"<StreamSender with {len(self._open)} of {self._most} calls in flight>"

    def send(self, payload: Payload, body: bytes, done: Done) -> bool:
        """See `Sender`."""
        if self._idle:
            slot = self._idle.pop()
        elif len(self._slots) < self._most:
            slot = _Slot(next(self._turns), self._metadata, self._ended, self._wants_final)
            self._slots.append(slot)
        else:
            return False
        call = _Call(payload, body, done, slot, self._clock())
        self._open[call] = None
        slot.take(call)
        return True

    def sweep(self, now: float) -> None:
        """See `Sender`."""
        latest = now - self._timeout
        for call in list(itertools.takewhile(lambda call: call.started <= latest, self._open)):
            del self._open[call]
            gevent.spawn(call.slot.cancel, call)
            call.done(TIMED_OUT, "", now)

    def close(self) -> None:
        """Forget the calls in flight. A stream is ended behind its call, and is not cancelled;
        a channel is closed when its last stream has ended.
        """
        self._open.clear()
        for slot in self._slots:
            slot.close()
        for line in self._lines:
            line.close()

    def _ended(self, call: _Call, outcome: str, answer: bytes) -> None:
        """What a stream tells of its call: an outcome, or an answer that is to be checked."""
        now = self._clock()
        self._idle.append(call.slot)
        if self._open.pop(call, call) is call:
            return  # swept away, or the sender is closed
        outcome = outcome or self._check(call.payload, answer, None)
        call.done(outcome, version_of(answer), now)


class _Slot:
    """One stream, the greenlet that calls over it, and its requests on their way."""

    def __init__(
        self,
        line: ChannelUse,
        metadata: Metadata,
        tell: Callable[[_Call, str, bytes], None],
        wants_final: bool,
    ) -> None:
        self._line = line
        self._metadata = metadata
        self._tell = tell
        self._wants_final = wants_final
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._stream: Any = None
        self._call: _Call | None = None  # that has the stream
        self._count = 0
        gevent.spawn(self._run)

    def __repr__(self) -> str:
        return f"<Slot after {self._count} calls, {'open' if self._stream else 'no stream'}>"

    def take(self, call: _Call) -> None:
        """The next call; the one before is over."""
        self._calls.put(call)

    def cancel(self, call: _Call) -> None:
        """End the stream if this call is still on it. It may switch greenlets."""
        if self._call is call and self._stream is not None:
            self._stream.cancel()

    def close(self) -> None:
        """End the stream when the call that is on it, if any, is over."""
        self._calls.put(None)

    def _run(self) -> None:
        for call in iter(self._calls.get, None):
            self._call = call
            try:
                outcome, answer = self._ask(call.body)
            except grpc.RpcError as error:
                self._hang_up()
                outcome, answer = outcome_of(error), b""
            except StopIteration:
                self._hang_up()
                outcome, answer = BROKEN, b""
            except BadRequest:
                outcome, answer = MALFORMED, b""
            self._call = None
            self._tell(call, outcome, answer)
        self._hang_up()

    def _ask(self, body: bytes) -> tuple[str, bytes]:
        """One call: its outcome, empty if that is for the answer to say, and its first answer."""
        self._connect()
        self._count += 1
        identity = b"%08x" % (self._count & 0xFFFFFFFF)
        field = protobuf.field(_ID, identity)
        self._requests.put(body + field)
        first = b""
        while True:
            parts = dict(protobuf.fields(next(self._stream)))
            answer = parts.get(_ANSWER, b"")
            if not isinstance(answer, bytes):
                return MALFORMED, b""
            if protobuf.request_id(answer, is_whole=True) not in (b"", identity):
                continue
            if _ERROR_MESSAGE in parts:
                return STREAM_ERROR, answer
            first = first or answer.replace(field, b"", 1)  # equal answers stay equal
            if not self._wants_final or _is_final(answer):
                return "", first

    def _connect(self) -> None:
        if self._stream is not None and self._stream.done():
            self._hang_up()
        if self._stream is None:
            self._requests = SimpleQueue()
            self._line.enter()
            self._stream = self._line.call(iter(self._requests.get, None), metadata=self._metadata)

    def _hang_up(self) -> None:
        """The client's end of the stream; what it says then is nobody's answer."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._requests.put(None)
            stream.add_done_callback(lambda _: self._line.leave())


def _is_final(answer: bytes) -> bool:
    for number, entry in protobuf.fields(answer):
        if number == _PARAMETERS and isinstance(entry, bytes) and _FINAL in entry:
            return dict(protobuf.fields(entry)).get(2) == _TRUE
    return False
