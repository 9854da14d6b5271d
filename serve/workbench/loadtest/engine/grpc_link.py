"""Unary gRPC calls as streams of one HTTP/2 connection.

What becomes of a call when the connection fails it:

    not written yet, or refused: above the last stream of a GOAWAY, REFUSED_STREAM   again, once
    any other RST_STREAM, and whatever ends the connection                           `reset`

A connection takes calls when the server's SETTINGS have come. A call over its time is forgotten,
and not reset: its answer is read and dropped, because Triton 2.51 may crash when a client takes
calls back (server issues 7368, 8034).
"""

from __future__ import annotations

from typing import Protocol, cast

from serve.wire import http2
from serve.wire.grpc_messages import PREFIX_SIZE
from serve.wire.hpack_blocks import HeaderBlocks
from serve.wire.http2_stream import Piece, Stream
from serve.wire.status import DEADLINE_EXCEEDED, OK
from serve.workbench.loadtest.engine.grpc_answers import GrpcHeads, HeadFields, Versions, whole
from serve.workbench.loadtest.engine.grpc_socket import SocketLink, Turn
from serve.workbench.loadtest.engine.http_shared import Shared
from serve.workbench.loadtest.engine.senders import Done
from serve.workbench.loadtest.plan import Payload
from serve.workbench.loadtest.record import BROKEN, MALFORMED, TIMED_OUT

_LAST_ID = http2.LAST_STREAM - 2
_NO_LIMIT = 1 << 31
_EARLY = 0.01  # seconds by which a server's timer may be ahead of ours


class GrpcLoadCall:
    """A call that has been asked for. `message` has its prefix. `is_over`: its end is told."""

    __slots__ = ("deadline", "done", "is_over", "is_repeated", "message", "payload")

    def __init__(self, payload: Payload, message: bytes, done: Done, deadline: float) -> None:
        self.payload = payload
        self.message = message
        self.done = done
        self.deadline = deadline
        self.is_over = self.is_repeated = False

    def __repr__(self) -> str:
        return f"<GrpcLoadCall of {len(self.message)} bytes{', over' * self.is_over}>"


class Owner(Protocol):
    """Who gives calls to connections."""

    def on_room(self, link: CallLink) -> None:
        """It has got room, by SETTINGS or an answer; or it is going, and has a call less."""

    def on_going(self, link: CallLink) -> None:
        """It takes no more calls."""

    def on_closed(self, link: CallLink) -> None:
        """It is closed, and has told of its calls."""

    def on_ended(self, call: GrpcLoadCall, outcome: str, decision: str, now: float) -> None:
        """A call is over, which it was not before."""

    def on_refused(self, call: GrpcLoadCall) -> None:
        """The server has not looked at it."""


class AnswerReading:
    """What the connections of a sender know of answers, and the head that all calls have."""

    __slots__ = ("block", "heads", "versions")

    def __init__(self, block: bytes) -> None:
        self.block = block
        self.heads = GrpcHeads()
        self.versions = Versions()


class LoadGrpcLeg(Stream):
    """One call on one connection. `head` is the answer's, None until it has come."""

    __slots__ = ("call", "head", "pieces")
    link: CallLink

    def __init__(self, link: CallLink, number: int, call: GrpcLoadCall) -> None:
        Stream.__init__(self, link, number)
        self.call = call
        self.head: HeadFields | None = None
        self.pieces: list[Piece] = []

    def on_data(self, piece: Piece, end: int) -> None:
        """A piece of the answer."""
        if self.head is None:
            self.link.fail(self, http2.PROTOCOL_ERROR)
            return
        self.consume(len(piece))
        if not self.call.is_over:
            self.pieces.append(piece)
        if end:  # without a status: the head is all there is
            self.link.finish(self, self.head)

    def on_reset(self, code: int) -> None:
        """The server has given the call up, or has broken a rule of its stream."""
        self.link.lost(self, is_refused=code == http2.REFUSED_STREAM)


class CallLink(SocketLink):
    """One connection. `room`: calls that it takes at one time, 0 before and after its time."""

    __slots__ = ("_blocks", "_owner", "_reading", "begun", "is_going", "is_ready", "room")

    def __init__(self, shared: Shared, turn: Turn, reading: AnswerReading, owner: Owner) -> None:
        self._owner = owner
        self._reading = reading
        self.is_ready = False  # the server has spoken
        self.is_going = False
        self.room = 0
        self.begun = shared.clock()
        super().__init__(shared, turn)
        self._blocks = HeaderBlocks(reading.heads, self.head_limit)

    def start(self, call: GrpcLoadCall) -> None:
        """Begin a call; only while there is room."""
        self.last_id = number = self.last_id + 2
        leg = LoadGrpcLeg(self, number, call)
        self.streams[number] = leg
        self.send_both(leg, self._reading.block, call.message, http2.END_STREAM)
        if number >= _LAST_ID:
            self.go()

    def go(self) -> None:
        """Take no more calls; those that it has get their answers."""
        if not self.is_going:
            self.is_going = True
            self.room = 0
            self._owner.on_going(self)

    def finish(self, leg: LoadGrpcLeg, said: HeadFields) -> None:
        """The answer is over; `said` has its status."""
        if leg.is_local_closed:
            self.forget(leg)
        else:
            self.reset(leg, http2.CANCEL)  # it came before the whole request had gone
        if len(self.streams) + 1 >= self.room:
            self._owner.on_room(self)
        call, head = leg.call, leg.head
        if call.is_over:
            return
        outcome, decision, now = said.outcome, said.decision, self.read_at
        if not decision and head is not None:
            decision = head.decision
        if said.status == OK:
            message = whole(leg.pieces)
            if message is None:
                outcome = MALFORMED
            else:
                decision = decision or self._reading.versions.read(message, PREFIX_SIZE)
                if call.payload.expected is not None:
                    outcome = self._judged(call.payload, message[PREFIX_SIZE:])
        elif said.status == DEADLINE_EXCEEDED and now >= call.deadline - _EARLY:
            outcome = TIMED_OUT
        self._owner.on_ended(call, outcome, decision, now)

    def lost(self, leg: LoadGrpcLeg, *, is_refused: bool) -> None:
        """The answer will not come."""
        self._owner.on_room(self)
        self._lose(leg, is_refused=is_refused)

    def _lose(self, leg: LoadGrpcLeg, *, is_refused: bool) -> None:
        call, head = leg.call, leg.head
        if call.is_over:
            return
        if is_refused and not call.is_repeated:
            call.is_repeated = True
            self._owner.on_refused(call)
        else:
            decision = head.decision if head is not None else ""
            self._owner.on_ended(call, BROKEN, decision, self.shared.clock())

    def _judged(self, payload: Payload, answer: bytes) -> str:
        try:
            return self.shared.check(payload, answer, None)
        except Exception:  # a checker's own fault is a call's end, not the connection's
            return MALFORMED

    # --- what the link tells ----------------------------------------------------------------------

    def on_settings(self, values: dict[int, int]) -> None:
        """The first ones say that an HTTP/2 server is there."""
        most = values.get(http2.MAX_CONCURRENT_STREAMS)
        if not self.is_going and (most is not None or not self.is_ready):
            self.room = _NO_LIMIT if most is None else most
        self.is_ready = True
        self._owner.on_room(self)

    def on_acknowledged(self) -> None:
        """Header blocks may be stateless from now on."""
        self._blocks.acknowledged()

    def on_head(self, number: int, block: bytes, end: int, data: bytes, after: int) -> int:
        """The head of an answer, or its trailers."""
        said = self._blocks.known.get(block) or self._blocks.read(block)
        leg = cast("LoadGrpcLeg | None", self.streams.get(number))
        if leg is None:
            self.check_not_idle(number)
        elif leg.is_remote_closed:
            self.fail(leg, http2.STREAM_CLOSED)
        elif (leg.head is None) != (said.http >= 0) or (said.http < 0 and not end):
            self.fail(leg, http2.PROTOCOL_ERROR)  # RFC 9113 8.1: a head, then trailers at the end
        elif end:
            self.finish(leg, said)
        elif not 100 <= said.http < 200:
            leg.head = said
        return after

    def on_goaway(self, last: int, code: int) -> None:
        """Streams above `last` have not been looked at; the others still get their answers."""
        legs = [leg for number, leg in self.streams.items() if number > last]
        for leg in legs:
            self.forget(leg)
        self.go()
        for leg in legs:
            self._lose(cast(LoadGrpcLeg, leg), is_refused=True)
        self._owner.on_room(self)

    def on_closed(self) -> None:
        """What has not been written was not sent; of the rest nobody knows."""
        self.is_going = True
        self.room = 0
        legs = tuple(self.streams.values())
        for leg in legs:
            self.forget(leg)
        for leg in legs:
            self._lose(cast(LoadGrpcLeg, leg), is_refused=leg.id > self.flushed_id)
        self._owner.on_closed(self)
