"""One multiplexed gRPC connection to a Triton, and the calls on it.

Theory. A call is an `UpstreamLeg`: one stream on one connection. Where it stands when something
breaks says whether the call may be tried elsewhere (`proxy/attempts.py`):

    find / wait ──▶ open ──▶ HEADERS … ──▶ answer ──▶ trailers
        │             │          │
        │ refused,    │ lost     │ REFUSED_STREAM, GOAWAY below it ──▶ NotSent
        │ too slow    │ before   │ RST_STREAM, EOF, reset ───────────▶ OutcomeUnknown
        ▼             ▼ a write
      NotSent       NotSent

A connection takes calls when the server's SETTINGS have come. No pings are sent: Triton counts them
as an attack.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from serve.core.errors import BadRequest, NotSent, OutcomeUnknown
from serve.core.limits import Limits
from serve.core.replicas import Replica
from serve.triton.grpc_connection import GrpcConnection
from serve.wire import http2
from serve.wire.grpc_heads import POST_OVER_HTTP, AnswerHead
from serve.wire.hpack_blocks import HeaderBlocks, Memo, literal
from serve.wire.http2_flow import FlowBoard
from serve.wire.http2_stream import Piece, Stream

_LAST_ID = http2.LAST_STREAM - 2
_NO_LIMIT = 1 << 31
_TWO_HEADS = 2 * http2.HEAD_SIZE
_LAST_HEAD = http2.END_HEADERS | http2.END_STREAM


class Receiver(Protocol):
    """Who gets an answer. Each leg ends with `on_trailers` or with `on_lost`.

    A head waits in `leg.head` for what comes behind it: it may be that of a refusal.
    """

    def on_answer(self, leg: "UpstreamLeg", piece: Piece) -> None:
        """A piece of the answer; `leg.consume` gives its credit back."""

    def on_trailers(self, leg: "UpstreamLeg", trailers: AnswerHead) -> None:
        """The status: the end of an answer, or all of it."""

    def on_whole_answer(self, leg: "UpstreamLeg", piece: Piece, trailers: AnswerHead) -> None:
        """Both at once: nothing came before, and nothing will come."""

    def on_lost(self, leg: "UpstreamLeg", error: NotSent | OutcomeUnknown) -> None:
        """The answer will not come."""

    def on_fault(self, error: Exception) -> None:
        """One of these has failed: end the call. It must not be tried again."""


class ConnectionWaiter(Protocol):
    """Who waits for a connection."""

    def on_connected(self, upstream: "Upstream") -> None:
        """It is there, and has room for a stream."""

    def on_not_connected(self, error: NotSent) -> None:
        """It will not be there."""

    def on_fault(self, error: Exception) -> None:
        """One of these has failed: end the call. It must not be tried again."""


class UpstreamLeg(Stream):
    """One call on its way to a replica. `head` is the answer's, until its receiver takes it."""

    __slots__ = ("has_head", "head", "receiver")
    link: "Upstream"

    def __init__(
        self, link: "Upstream", number: int, receiver: Receiver, source: Stream | None
    ) -> None:
        Stream.__init__(self, link, number)
        self.source = source
        self.receiver = receiver
        self.head: AnswerHead | None = None
        self.has_head = False

    def on_data(self, piece: Piece, end: int) -> None:
        """A piece of the answer."""
        if not self.has_head:
            self.link.fail(self, http2.PROTOCOL_ERROR)
            return
        try:
            self.receiver.on_answer(self, piece)
        except BadRequest:  # it is Triton whose messages are none, not the client's
            self.link.fail(self, http2.PROTOCOL_ERROR)
            return
        except Exception as error:
            self.link.on_receiver_fault(self, error)
            return
        if end:
            self.link.forget(self)
            self.lose("the response ended without a status")

    def on_reset(self, code: int) -> None:
        """Triton has given the call up."""
        self.lose(f"RST_STREAM {code}", code)

    def lose(self, why: str, code: int = http2.NO_ERROR) -> None:
        """The answer will not come: the receiver hears of it."""
        try:
            self.receiver.on_lost(self, self.link.broken(why, code))
        except Exception as error:
            self.link.on_receiver_fault(self, error)


class Upstream(GrpcConnection):
    """One connection to one replica."""

    __slots__ = (
        "_blocks",
        "_on_change",
        "_prefix",
        "idle_since",
        "is_going",
        "is_ready",
        "replica",
        "room",
    )

    def __init__(
        self,
        replica: Replica,
        board: FlowBoard,
        limits: Limits,
        memo: Memo[AnswerHead],
        *,
        on_change: Callable[["Upstream"], None],
    ) -> None:
        """`on_change` is called when it gets room, loses it for good, or is closed."""
        super().__init__(board, limits)
        self.last_id = -1
        self.idle_since = 0.0
        self.is_ready = False  # the server has spoken
        self.is_going = False  # takes no more calls
        self.room = 0  # calls that it takes at one time
        self.replica = replica
        self._prefix = POST_OVER_HTTP + literal(b":authority", replica.grpc_target.encode())
        self._blocks = HeaderBlocks(memo, limits.head)
        self._on_change = on_change

    @property
    def has_room(self) -> bool:
        """Whether another call may be opened."""
        return len(self.streams) < self.room

    def open(
        self, receiver: Receiver, block: bytes, piece: Piece, end: int, source: Stream | None
    ) -> UpstreamLeg:
        """A new call; `block` starts with `:path`. Only when `has_room`.

        `piece` is the first of the message, or all of it, and `source` is where it came from.
        """
        self.last_id = number = self.last_id + 2
        if number >= _LAST_ID:
            self.go()
        leg = UpstreamLeg(self, number, receiver, source)
        self.streams[number] = leg
        self.send_both(leg, self._prefix + block, piece, end)
        return leg

    def go(self) -> None:
        """Take no more calls; those that it has get their answers."""
        self.is_going = True
        self.room = 0

    def broken(self, why: str, code: int = http2.NO_ERROR) -> NotSent | OutcomeUnknown:
        """The error for a stream that was lost."""
        if code == http2.REFUSED_STREAM:
            return NotSent(f"replica {self.replica.name} refused the call", why=why)
        return OutcomeUnknown(
            f"the connection to replica {self.replica.name} broke during the call",
            why=why,
            try_this="retry only if the call may be executed twice",
        )

    # --- what the link tells ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Our side of the connection begins."""
        super().connection_made(transport)
        self.send(http2.PREFACE + self.opening({http2.ENABLE_PUSH: 0}))
        self.flush()

    def on_settings(self, values: dict[int, int]) -> None:
        """The first ones say that an HTTP/2 server is there."""
        most = values.get(http2.MAX_CONCURRENT_STREAMS)
        if not self.is_going and (most is not None or not self.is_ready):
            self.room = _NO_LIMIT if most is None else most
        self.is_ready = True
        self._on_change(self)

    def on_acknowledged(self) -> None:
        """Header blocks may be stateless from now on."""
        self._blocks.acknowledged()

    def on_head(self, number: int, block: bytes, end: int, data: bytes, after: int) -> int:
        """The head of an answer, or its trailers."""
        head = self._blocks.known.get(block) or self._blocks.read(block)
        leg = self.streams.get(number)
        if leg is None:
            self.check_not_idle(number)
        elif leg.is_remote_closed:
            self.fail(leg, http2.STREAM_CLOSED)
        elif cast(UpstreamLeg, leg).has_head != (head.http < 0) or (head.http < 0 and not end):
            self.fail(leg, http2.PROTOCOL_ERROR)  # RFC 9113 8.1: a head, then trailers at the end
        elif end:
            self._on_trailers(cast(UpstreamLeg, leg), head)
        elif not 100 <= head.http < 200:
            cast(UpstreamLeg, leg).head = head
            cast(UpstreamLeg, leg).has_head = True
            if after + _TWO_HEADS < len(data) and leg.is_local_closed:
                return self._on_rest(cast(UpstreamLeg, leg), data, after)
        return after

    def _on_rest(self, leg: UpstreamLeg, data: bytes, after: int) -> int:
        """Take along one DATA frame and known trailers, when they are all that follows the head."""
        word, flags, number = http2.read_head(data, after)
        start = after + http2.HEAD_SIZE
        end = start + (word >> 8)
        if number != leg.id or word & 0xFF or flags or end + http2.HEAD_SIZE > len(data):
            return after
        word, flags, number = http2.read_head(data, end)
        stop = end + http2.HEAD_SIZE + (word >> 8)
        if number != leg.id or word & 0xFF != http2.HEADERS or flags != _LAST_HEAD:
            return after
        trailers = self._blocks.known.get(data[end + http2.HEAD_SIZE : stop])
        if trailers is None or end - start > self.frame_limit or end - start > leg.credit:
            return after
        if data[start : start + 1] > b"\1":  # no flag of gRPC's: `on_data` says so
            return after
        self.credit -= end - start
        try:
            if len(self.streams) >= self.room:
                leg.receiver.on_answer(leg, data[start:end])
                self._on_trailers(leg, trailers)
            else:
                self.forget(leg)
                leg.receiver.on_whole_answer(leg, data[start:end], trailers)
        except Exception as error:
            self.on_receiver_fault(leg, error)
        return stop

    def on_receiver_fault(self, leg: UpstreamLeg, error: Exception) -> None:
        """Who receives an answer has failed at it: only this call ends, not the connection."""
        if self.streams.get(leg.id) is leg:
            self.reset(leg, http2.CANCEL)
        leg.receiver.on_fault(error)

    def _on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        if leg.is_local_closed:
            self.forget(leg)
        else:
            self.reset(leg, http2.CANCEL)  # an answer before the whole request
        try:
            leg.receiver.on_trailers(leg, trailers)
        except Exception as error:
            self.on_receiver_fault(leg, error)
        if len(self.streams) + 1 >= self.room:  # somebody may wait for this place
            self._on_change(self)

    def on_goaway(self, last: int, code: int) -> None:
        """Streams above `last` have not been looked at; the others still get their answers."""
        self.go()
        for number in [number for number in self.streams if number > last]:
            leg = self.streams[number]
            assert isinstance(leg, UpstreamLeg)
            self.forget(leg)
            leg.lose(f"GOAWAY {code}", http2.REFUSED_STREAM)
        self._on_change(self)

    def on_closed(self, why: str) -> None:
        """What has not been written was not sent; of the rest nobody knows."""
        self.go()
        for leg in tuple(self.streams.values()):
            assert isinstance(leg, UpstreamLeg)
            is_sent = leg.id <= self.flushed_id
            self.forget(leg)
            leg.lose(why, http2.NO_ERROR if is_sent else http2.REFUSED_STREAM)
        self._on_change(self)
