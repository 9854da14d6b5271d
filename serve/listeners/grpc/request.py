"""The request of a unary call: one message, spliced to the replica that its first bytes decide.

Theory. Name and version stand in the first bytes of the message. They decide where it goes; what
the version is called there is appended behind the message, and its length is corrected in front.
Tensors pass through unread. What was sent is kept, up to a limit, until an answer says that the
call has been executed: after a refusal it can go to another replica.

    front ──▶ (held whole) ──▶ routed ──▶ sending ──▶ sent
              compressed,       │  ▲         │
              sequences,        ▼  └─────────┘ not sent, refused
              fields out of     connecting
              order, questions
"""

from serve.core.calls import Call, Verb
from serve.core.errors import (
    BadRequest,
    BodyTooLarge,
    NotSent,
    OutcomeUnknown,
    ServegateError,
    Unavailable,
)
from serve.listeners.grpc.call import ClientCall
from serve.listeners.grpc.desk import ClientLink, Desk
from serve.listeners.grpc.restoring import Restoring
from serve.proxy.attempts import Attempt
from serve.triton.grpc_upstream import Leg, Upstream
from serve.wire import protobuf
from serve.wire.grpc_heads import AnswerHead
from serve.wire.grpc_messages import PREFIX, PREFIX_SIZE, cut_off, inflate, read_prefix, second
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece
from serve.wire.kserve_grpc import selector_of

KEPT = 1 << 18  # bytes of a request that are kept for a repeat
_FRONT = 1 << 12  # bytes in which the names are looked for while the message comes
_JOIN = 1 << 15  # bytes of a message up to which a copy is cheaper than a frame of its own


class UnaryRequest(ClientCall):
    """The way there; `UnaryCall` is the way back."""

    __slots__ = (
        "_answered_at",
        "_attempt",
        "_front",
        "_held",
        "_left",
        "_leg",
        "_pieces",
        "_restoring",
        "_sent_at",
        "_suffix",
        "_walk",
        "_whole",
    )

    def __init__(self, link: ClientLink, number: int, desk: Desk, head: RequestHead) -> None:
        ClientCall.__init__(self, link, number, desk, head)
        self._attempt: Attempt | None = None
        self._leg: Leg | None = None
        self._front = b""  # what came before the names were known
        self._whole: list[Piece] | None = None  # a message that has to be held
        self._left = 0  # bytes of the message that are still to come
        self._suffix = b""
        self._walk: protobuf.Walk | None = None  # over a message that passes in pieces
        self._pieces: list[Piece] | None = None  # what was sent, as long as it may be repeated
        self._held = 0  # bytes that the board counts for this call
        self._restoring: Restoring | None = None
        self._sent_at = self._answered_at = 0.0  # when a slow request ended, an answer began

    # --- what comes back, see `UnaryCall` ---------------------------------------------------------

    def on_answer(self, leg: Leg, piece: Piece) -> None:
        """See `Receiver`."""
        raise NotImplementedError

    def on_trailers(self, leg: Leg, trailers: AnswerHead) -> None:
        """See `Receiver`."""
        raise NotImplementedError

    def on_whole_answer(self, leg: Leg, piece: Piece, trailers: AnswerHead) -> None:
        """See `Receiver`."""
        raise NotImplementedError

    # --- the request ------------------------------------------------------------------------------

    def on_data(self, piece: Piece, end: int) -> None:
        """A piece of the message."""
        size = len(piece)
        self.received += size
        if self.is_ended:
            return
        try:
            if end and 0 <= self.head.length != self.received:
                raise BadRequest("the content-length is not the length of the message")
            if self._attempt is not None:
                self._go_on(piece, size, end)
            elif self._whole is not None:
                self._hold(piece, size, end)
            else:
                self._begin(piece, end)
        except ServegateError as error:
            self.fail(error)

    def _begin(self, piece: Piece, end: int) -> None:
        """The first bytes: route the call as soon as they say where it goes."""
        if self._front:
            piece = self._front + piece
        size = len(piece)
        if size < PREFIX_SIZE:
            if end:
                raise cut_off(size)
            self._front = bytes(piece)
            return
        desk = self.desk
        flag, length = read_prefix(piece)
        if length > desk.limits.body:
            raise BodyTooLarge(desk.limits.body)
        stop = PREFIX_SIZE + length
        self._left = left = stop - size
        if left and (end or left < 0):
            raise cut_off(size) if left > 0 else second()
        if not flag and self.head.verb is Verb.INFER:
            found = self._names(piece, stop)
            if found is not None and not desk.serves_sequences(found[0], self.head.authorization):
                self._route(found[0], found[1], "")
                self._send_first(piece, length)
                return
            if found is None and size < _FRONT:
                self._front = bytes(piece)
                return
        self._front, self._whole = b"", []
        self.check_room()
        self._left = stop
        self._hold(piece, size, end)

    def _names(self, piece: Piece, stop: int) -> tuple[str, str] | None:
        """Name and version; None while they are not known. What follows them is walked over."""
        if not self._left:
            return protobuf.whole_names(piece, PREFIX_SIZE)
        found = protobuf.names(piece, PREFIX_SIZE, stop)
        if found is not None:
            self._walk = protobuf.Walk()
            self._walk.follow(piece, PREFIX_SIZE)
        return found

    def _hold(self, piece: Piece, size: int, end: int) -> None:
        """A message that has to be read as a whole; its credit goes back as it comes."""
        assert self._whole is not None
        self._left -= size
        if self._left < 0:
            raise second()
        if end and self._left:
            raise cut_off(self.received)
        self._count(size)
        self._whole.append(piece)
        self.consume(size)
        self.check_room()
        if self._left:
            return
        whole, self._whole = b"".join(self._whole), None
        self._count(-self._held)
        body, limits = whole[PREFIX_SIZE:], self.desk.limits
        if whole[0]:
            body = inflate(body, self.head.encoding, min(limits.inflated, limits.body))
        if self.head.verb is Verb.SERVER_METADATA:
            self._route("", "", "")
        else:
            seen = protobuf.peek(body, infer=self.head.verb is Verb.INFER)
            key = self.head.authorization
            stateful = bool(seen.sequence) and self.desk.serves_sequences(seen.model, key)
            self._route(seen.model, seen.version, seen.sequence if stateful else "")
        self._send_first(b"\0\0\0\0\0" + body, len(body))

    def _route(self, model: str, version: str, sequence: str) -> None:
        version = selector_of(version) if version else ""
        verb, key = self.head.verb, self.head.authorization
        assert verb is not None
        call = Call("grpc", verb, model, version, self.deadline, sequence, "", key, self)
        self._attempt = attempt = self.desk.gateway.begin(call)
        choice = attempt.choice
        if choice is not None:
            self._suffix = self.desk.names(choice)
            if choice.is_renamed:
                self._restoring = Restoring(verb, choice.target)

    def _send_first(self, piece: Piece, length: int) -> None:
        """The start of the message, or all of it, with the prefix that its new length needs."""
        suffix = self._suffix
        prefix = PREFIX.pack(0, length + len(suffix))
        if self._left:
            suffix = b""
        if len(piece) <= _JOIN:
            self._pieces = [b"".join((prefix, piece[PREFIX_SIZE:], suffix))]
        else:
            self._pieces = [prefix, piece[PREFIX_SIZE:], suffix]
        self._held = size = len(piece) + len(suffix)
        self.desk.board.held += size
        self._send_all()

    def _go_on(self, piece: Piece, size: int, end: int) -> None:
        """More of a message that has been routed."""
        if size > self._left:
            raise second()
        if end and size < self._left:
            raise cut_off(self.received)
        self._left -= size
        if size and self._walk is not None:
            self._walk.follow(piece)
        if size and not self._left:
            if self._walk is not None:
                self._walk.finish()
            self._send(piece, 0)
            piece = self._suffix
        self._send(piece, end)

    def _send(self, piece: Piece, end: int) -> None:
        """Send upstream, when there is a leg; keep it as long as it may have to be repeated."""
        leg = self._leg
        if self._pieces is not None:
            self._pieces.append(piece)
            self._count(len(piece))
            if leg is not None and self._held > KEPT:
                self._release()
        if leg is not None:
            leg.link.send_data(leg, piece, end)
            if end:
                self._sent_at = self.desk.clock()

    # --- the way there ----------------------------------------------------------------------------

    def on_connected(self, upstream: Upstream) -> None:
        """There is a connection after a while."""
        if not self.is_ended:
            self._sent_at = self.desk.clock()
            self._send_on(upstream)

    def _send_on(self, upstream: Upstream) -> None:
        """Send what has come so far on this connection."""
        block = self.head.plain if self._restoring is not None else self.head.block
        if self.desk.may_forward:
            block += self.desk.timeout(upstream.replica, self.deadline)
        pieces = self._pieces
        assert pieces is not None
        last = END_STREAM if self.is_remote_closed else 0
        if len(pieces) == 1:
            self._leg = self.source = upstream.open(self, block, pieces[0], last, self)
            return
        self._leg = self.source = leg = upstream.open(self, block, pieces[0], 0, self)
        for piece in pieces[1:-1]:
            upstream.send_data(leg, piece)
        upstream.send_data(leg, pieces[-1], last)
        if self._held > KEPT:
            self._release()

    def _send_all(self) -> None:
        """To the replica that the attempt has come to, as soon as there is a connection."""
        assert self._attempt is not None
        upstream = self.desk.pool.find(self._attempt.replica)
        if upstream is None:
            self.desk.pool.wait(self._attempt.replica, self)
        else:
            self._send_on(upstream)

    def on_not_connected(self, error: NotSent) -> None:
        """There will be no connection."""
        if not self.is_ended:
            self._go_elsewhere(error)

    def on_lost(self, leg: Leg, error: NotSent | OutcomeUnknown) -> None:
        """The leg has broken."""
        self._leg = self.source = None
        if isinstance(error, OutcomeUnknown):
            self.fail(error)
        elif self._pieces is None or self.is_head_sent:
            self.fail(Unavailable(error.what, why="the request is too large to be repeated"))
        else:
            self._go_elsewhere(error)

    def _go_elsewhere(self, error: NotSent) -> None:
        assert self._attempt is not None
        try:
            self._attempt.not_sent(error)
            self._sent_at = self.desk.clock()
            self._send_all()
        except ServegateError as final:
            self.fail(final)

    def _release(self) -> None:
        """What was kept will not be repeated."""
        self._pieces = None
        if self._held:
            self._count(-self._held)

    def _count(self, size: int) -> None:
        self._held += size
        self.desk.board.held += size
