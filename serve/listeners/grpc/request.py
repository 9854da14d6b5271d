"""The request of a unary call: one message, spliced to the replica that its first bytes decide.

Theory. Name and version stand in the first bytes of the message. They decide where it goes; what
the version is called there is appended behind the message, and its length is corrected in front.
Tensors pass through unread. What was sent is kept, up to a limit, until an answer says that the
call has been executed: after a refusal it can go to another replica.

    front ──▶ (held whole) ──▶ routed ──▶ sending ──▶ sent          `forwarding` tells the rest
      │       compressed,       │  ▲         │
      │       sequences,        ▼  └─────────┘ not sent, refused
      │       fields out of     sleeping, connecting
      │       order, questions  ▲
      └─▶ arriving: it takes no ┘
          slot before it is complete, or so many bytes of it are here as are kept for a repeat
"""

from collections.abc import Sequence

from serve.core.calls import Call, Verb
from serve.core.errors import Asleep, BadRequest, BodyTooLarge, ServegateError
from serve.core.limits import FIRST, SMALL
from serve.listeners.grpc.call import ClientCall
from serve.listeners.grpc.desk import ClientLink, Desk
from serve.listeners.grpc.forwarding import KEPT, Forwarding
from serve.listeners.grpc.restoring import Restoring
from serve.proxy.attempts import Attempt
from serve.wire import protobuf
from serve.wire.grpc_messages import PREFIX, PREFIX_SIZE, cut_off, inflate, read_prefix, second
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2_stream import Piece
from serve.wire.kserve_grpc import selector_of

_FRONT = 1 << 12  # bytes in which the names are looked for while the message comes
_JOIN = 1 << 15  # bytes of a message up to which a copy is cheaper than a frame of its own


class Arriving:
    """A message that cannot be sent yet: what has come of it, and since when."""

    __slots__ = ("call", "found", "pieces", "since")

    def __init__(
        self, found: tuple[str, str], call: Call, since: float, pieces: list[Piece]
    ) -> None:
        self.found = found  # name and version
        self.call = call
        self.since = since
        self.pieces = pieces


class UnaryRequest(Forwarding):
    """The message; `UnaryCall` is the way back."""

    __slots__ = ("_arriving", "_front", "_left", "_suffix", "_walk", "_whole")

    def __init__(self, link: ClientLink, number: int, desk: Desk, head: RequestHead) -> None:
        ClientCall.__init__(self, link, number, desk, head)
        self._attempt = None
        self._leg = None
        self._front = b""  # what came before the names were known
        self._arriving: Arriving | None = None  # until it can be sent
        self._whole: list[Piece] | None = None  # a message that has to be held
        self._left = 0  # bytes of the message that are still to come
        self._suffix = b""
        self._walk: protobuf.Walk | None = None  # over a message that passes in pieces
        self._pieces = None
        self._held = 0
        self._restoring = None
        self._sent_at = self._answered_at = 0.0

    # --- the request ------------------------------------------------------------------------------

    def on_data(self, piece: Piece, end: int) -> None:
        """A piece of the message."""
        size = len(piece)
        self.received += size
        if self.is_ended:
            return
        try:
            if end and 0 <= self.head.length != self.received:
                raise BadRequest("the content-length differs from the length of the message")
            if self._attempt is not None:
                self._go_on(piece, size, end)
            elif self._whole is not None:
                self._hold(piece, size, end)
            elif self._arriving is not None:
                self._arrive(self._arriving, piece, size, end)
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
                if self._has_to_wait(size):
                    self._wait_for_more(found, piece, size)
                    return
                self._route(found[0], found[1], "", piece, length)
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

    def _has_to_wait(self, size: int) -> bool:
        """Whether a message of which so many bytes have come cannot be sent yet."""
        left = self._left
        return left > 0 and (size < FIRST or size + left <= SMALL)

    def _wait_for_more(self, found: tuple[str, str], piece: Piece, size: int) -> None:
        """It takes no slot yet. What would be refused is refused before the rest comes."""
        call = self._call(*found, "")
        self.desk.gateway.check(call)
        self.check_room()
        self._arriving = Arriving(found, call, self.desk.clock(), [piece])
        self._front = b""
        self._count(size)

    def _arrive(self, arriving: "Arriving", piece: Piece, size: int, end: int) -> None:
        """More of it; its credit goes back when it is sent."""
        if size > self._left:
            raise second()
        if end and size < self._left:
            raise cut_off(self.received)
        if size:
            arriving.pieces.append(piece)
            self._count(size)
            self._left -= size
            if self._walk is not None:
                self._walk.follow(piece)
        if self._has_to_wait(self.received):
            self.check_room()
            return
        if not self._left and self._walk is not None:
            self._walk.finish()
        self._arriving = None
        self._count(-self._held)
        first, *rest = arriving.pieces
        self._route(*arriving.found, "", first, read_prefix(first)[1], rest)
        if self._attempt is not None:
            self._attempt.came_at(arriving.since)

    def _call(self, model: str, version: str, sequence: str) -> Call:
        version = selector_of(version) if version else ""
        verb, key = self.head.verb, self.head.authorization
        assert verb is not None
        return Call("grpc", verb, model, version, self.deadline, sequence, "", key, self)

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
        model = version = sequence = ""
        if self.head.verb is not Verb.SERVER_METADATA:
            seen = protobuf.peek(body, infer=self.head.verb is Verb.INFER)
            model, version, key = seen.model, seen.version, self.head.authorization
            if seen.sequence and self.desk.serves_sequences(model, key):
                sequence = seen.sequence
        self._route(model, version, sequence, PREFIX.pack(0, len(body)) + body, len(body))

    def _route(
        self,
        model: str,
        version: str,
        sequence: str,
        piece: Piece,
        length: int,
        rest: Sequence[Piece] = (),
    ) -> None:
        """Find a replica, and send it what has come of the message: `piece`, and the `rest`."""
        call = self._call(model, version, sequence)
        try:
            self._attempt = attempt = self.desk.gateway.begin(call)
        except Asleep:
            self._sleep(call, b"".join((piece, *rest)) if rest else piece)
            return
        self._send_first(attempt, piece, length, rest)

    def on_awake(self, attempt: Attempt) -> None:
        """See `Waiter`. What has come meanwhile is sent as if it had come at once.

        A message that was sent before has names at its end; those that follow them now count.
        """
        self._attempt, self._restoring = attempt, None
        self._sent_at = self.desk.clock()
        whole = b"".join(self._pieces or ())
        self._release()
        self._send_first(attempt, whole, read_prefix(whole)[1])

    def _send_first(
        self, attempt: Attempt, piece: Piece, length: int, rest: Sequence[Piece] = ()
    ) -> None:
        """With the prefix that its new length needs."""
        choice = attempt.choice
        if choice is not None:
            self._suffix = self.desk.names(choice)
            if choice.is_renamed:
                self._restoring = Restoring(attempt.call.verb, choice.target)
        suffix = self._suffix
        prefix = PREFIX.pack(0, length + len(suffix))
        if self._left:
            suffix = b""
        size = len(piece)
        if rest:
            size += sum(map(len, rest))
        if size <= _JOIN:
            self._pieces = [b"".join((prefix, piece[PREFIX_SIZE:], *rest, suffix))]
        else:
            self._pieces = [prefix, piece[PREFIX_SIZE:], *rest, suffix]
        self._held = size = size + len(suffix)
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
