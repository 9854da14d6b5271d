"""A unary call over gRPC: one message to a replica, and what comes back for it.

Theory. Name and version stand in the first bytes of the message. They decide where it goes; what
the version is called there is appended behind the message, and its length is corrected in front.
Tensors pass through unread. What was sent is kept, up to a limit, until an answer says that the
call has been executed: after a refusal it can go to another replica.

    front ──▶ (held whole) ──▶ routed ──▶ sending ──▶ sent ──▶ answered
      │       compressed,       │  ▲         │          │
      │       sequences,        ▼  └─────────┴──────────┘ not sent, refused
      │       fields out of     sleeping, connecting
      │       order, questions  ▲
      └─▶ arriving: it takes no ┘
          slot before it is complete, or so many bytes of it are here as are kept for a repeat

While the model's pool has been scaled to zero (see `proxy/waiting_calls.py`), what has come of the
message is kept in the same way. Its credit does not go back meanwhile, so a client that has more of
it waits as well.

The head of an answer waits for what follows it, because it may be that of a refusal, which another
replica can make good. From the first byte of an answer on the call has been executed, and the
answer passes as it is: fields in their order, bytes as they come. Only the decision is added to its
trailers.
"""

from collections.abc import Sequence

from serve.core import faults
from serve.core.calls import Account, Call, Choice, Reply, Verb
from serve.core.errors import (
    Asleep,
    BadRequest,
    BodyTooLarge,
    NotLoaded,
    NotSent,
    OutcomeUnknown,
    ServegateError,
    Unavailable,
)
from serve.core.limits import FIRST, SMALL
from serve.listeners.grpc.call import ClientCall
from serve.listeners.grpc.context import ClientLink, GrpcContext
from serve.listeners.grpc.model_names import RestoredAnswer
from serve.proxy.attempts import NOWHERE, Attempt
from serve.proxy.mirrors import MirroredCall
from serve.triton.grpc_upstream import Upstream, UpstreamLeg
from serve.wire import protobuf
from serve.wire.grpc_heads import AnswerHead
from serve.wire.grpc_messages import PREFIX, PREFIX_SIZE, cut_off, inflate, read_prefix, second
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece
from serve.wire.kserve_grpc import selector_of
from serve.wire.status import not_ready

KEPT = 1 << 18  # bytes of a request that are kept for a repeat
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


class UnaryCall(ClientCall):
    """One call of ModelInfer, or of a question about a model or the server."""

    __slots__ = (
        "_answered_at",
        "_arriving",
        "_attempt",
        "_copy",
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

    def __init__(
        self, link: ClientLink, number: int, context: GrpcContext, head: RequestHead
    ) -> None:
        ClientCall.__init__(self, link, number, context, head)
        self._attempt: Attempt | None = None
        self._copy: MirroredCall | None = None  # to be mirrored, once the answer is through
        self._leg: UpstreamLeg | None = None
        self._front = b""  # what came before the names were known
        self._arriving: Arriving | None = None  # until it can be sent
        self._whole: list[Piece] | None = None  # a message that has to be held
        self._left = 0  # bytes of the message that are still to come
        self._suffix = b""
        self._walk: protobuf.FieldWalk | None = None  # over a message that passes in pieces
        self._pieces: list[Piece] | None = None  # what was sent, as long as it may be repeated
        self._held = 0  # bytes that the board counts for this call
        self._restoring: RestoredAnswer | None = None
        self._sent_at = 0.0  # when a slow request ended
        self._answered_at = 0.0  # when an answer began

    def account(self) -> Account:
        """See `Origin`. An answer that came as a whole has come just now."""
        attempt, upstream = self._attempt, 0.0
        if attempt is not None and (self.answered or self._answered_at):
            came = self._answered_at or self.context.clock()
            upstream = came - (self._sent_at or attempt.begun)
        return self.account_of(self.received, self.answered, max(0.0, upstream))

    @property
    def has_begun(self) -> bool:
        """See `ClientCall`."""
        return self._attempt is not None

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
        context = self.context
        flag, length = read_prefix(piece)
        if length > context.limits.body:
            raise BodyTooLarge(context.limits.body)
        stop = PREFIX_SIZE + length
        self._left = left = stop - size
        if left and (end or left < 0):
            raise cut_off(size) if left > 0 else second()
        if not flag and self.head.verb is Verb.INFER:
            found = self._names(piece, stop)
            if found is not None and not context.serves_sequences(
                found[0], self.head.authorization
            ):
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
            self._walk = protobuf.FieldWalk()
            self._walk.follow(piece, PREFIX_SIZE)
        return found

    def _has_to_wait(self, size: int) -> bool:
        """Whether a message of which so many bytes have come cannot be sent yet."""
        left = self._left
        return left > 0 and (size < FIRST or size + left <= SMALL)

    def _wait_for_more(self, found: tuple[str, str], piece: Piece, size: int) -> None:
        """It takes no slot yet. What would be refused is refused before the rest comes."""
        call = self._call(*found, "")
        self.context.gateway.check(call)
        self.check_room()
        self._arriving = Arriving(found, call, self.context.clock(), [piece])
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
        body, limits = whole[PREFIX_SIZE:], self.context.limits
        if whole[0]:
            body = inflate(body, self.head.encoding, min(limits.inflated, limits.body))
        model = version = sequence = ""
        if self.head.verb is not Verb.SERVER_METADATA:
            seen = protobuf.peek(body, infer=self.head.verb is Verb.INFER)
            model, version, key = seen.model, seen.version, self.head.authorization
            if seen.sequence and self.context.serves_sequences(model, key):
                sequence = seen.sequence
        self._route(model, version, sequence, PREFIX.pack(0, len(body)) + body, len(body))

    # --- it is routed, and waits for a pool that sleeps or has not loaded the model ---------------

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
            self._attempt = attempt = self.context.gateway.begin(call)
        except Asleep:
            self._sleep(call, b"".join((piece, *rest)) if rest else piece)
            return
        self._send_first(attempt, piece, length, rest)

    def _sleep(self, call: Call, piece: Piece) -> None:
        """Wait for a replica. `piece` begins with the prefix of the message."""
        self.deadline = call.deadline
        self.check_room(to_sleep=True)
        self._attempt = self.context.gateway.wait(call, self)
        self._pieces = [piece]
        self._count(len(piece))

    def _wait_loaded(self, attempt: Attempt, error: NotLoaded) -> None:
        """Wait until a replica has loaded the model; what was kept is sent again then."""
        try:
            self._attempt = self.context.gateway.wait_loaded(attempt, self, error)
        except NotLoaded as final:
            self.fail(final)

    def on_awake(self, attempt: Attempt) -> None:
        """See `Waiter`. What has come meanwhile is sent as if it had come at once.

        A message that was sent before has names at its end; those that follow them now count.
        """
        self._attempt, self._restoring = attempt, None
        self._sent_at = self.context.clock()
        whole = b"".join(self._pieces or ())
        self._release()
        self._send_first(attempt, whole, read_prefix(whole)[1])

    def on_asleep(self, error: ServegateError) -> None:
        """See `Waiter`."""
        self.fail(error)

    # --- it is sent -------------------------------------------------------------------------------

    def _send_first(
        self, attempt: Attempt, piece: Piece, length: int, rest: Sequence[Piece] = ()
    ) -> None:
        """With the prefix that its new length needs."""
        self.deadline = attempt.call.deadline
        choice = attempt.choice
        if choice is not None:
            self._suffix = self.context.names(choice)
            if choice.is_renamed:
                self._restoring = RestoredAnswer(attempt.call.verb, choice.target)
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
        self.context.board.held += size
        self._send_all()

    def _send_all(self) -> None:
        """To the replica that the attempt has come to, as soon as there is a connection."""
        assert self._attempt is not None
        upstream = self.context.pool.find(self._attempt.replica)
        if upstream is None:
            self.context.pool.wait(self._attempt.replica, self)
        else:
            self._send_on(upstream)

    def on_connected(self, upstream: Upstream) -> None:
        """There is a connection after a while."""
        if not self.is_ended:
            self._sent_at = self.context.clock()
            self._send_on(upstream)

    def _send_on(self, upstream: Upstream) -> None:
        """Send what has come so far on this connection."""
        block = self.head.plain if self._restoring is not None else self.head.block
        if self.context.may_forward:
            block += self.context.timeout(upstream.replica, self.deadline)
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
                self._sent_at = self.context.clock()

    def on_not_connected(self, error: NotSent) -> None:
        """There will be no connection."""
        if not self.is_ended:
            self._go_elsewhere(error)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        """The leg has broken."""
        self._leg = self.source = None
        if self._pieces is not None and not self.is_head_sent:
            self._go_elsewhere(error)
        elif isinstance(error, OutcomeUnknown):
            self.fail(error)
        else:
            self.fail(Unavailable(error.what, why="the request is too large for a retry"))

    def _go_elsewhere(self, error: NotSent | OutcomeUnknown) -> None:
        assert self._attempt is not None
        try:
            if isinstance(error, NotSent):
                self._attempt.not_sent(error)
            else:
                self._attempt.broken_off(error)
            self._sent_at = self.context.clock()
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
        self.context.board.held += size

    # --- the answer -------------------------------------------------------------------------------

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        """A piece of the answer."""
        head, restoring = leg.head, self._restoring
        if head is not None:
            self._answered_at = self.context.clock()
            choice = self._attempt.choice if self._attempt is not None else None
            if choice is not None and choice.mirror is not None:
                faults.contained(self, self._copy_call, choice, piece)
        self.answered += len(piece)
        if restoring is None and head is not None:
            self._executed(leg)
            self.link.send_both(self, head.block, piece)
        elif restoring is None:
            self.link.send_data(self, piece)
        else:
            if head is not None:
                self._executed(leg)
                self.link.send_head(self, head.block)
            for part in restoring.pass_on(piece):
                self.link.send_data(self, part)

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        """The status. One that refuses the call may send it to another replica."""
        attempt = self._attempt
        assert attempt is not None
        self._leg = self.source = None
        status = trailers.status
        if not self.answered:
            self._answered_at = self.context.clock()
        if status and not self.is_head_sent and self._is_refused(attempt, status, trailers.message):
            return
        head = leg.head
        if head is not None:
            self._executed(leg)
            self.link.send_head(self, head.block)
        elif self._held:
            self._release()
        attempt.answered(status, good=status == 0)
        block = trailers.block
        if self._restoring is not None and trailers.said:
            block = trailers.with_message(self._restoring.in_sentence(trailers.message))
        self.end_with(block + self.context.decision(attempt.decision))
        if self._copy is not None and status == 0:
            faults.contained(self, self._mirror, self._copy)

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        """All of it at once, which is the usual case."""
        attempt, head = self._attempt, leg.head
        assert attempt is not None and head is not None
        if not trailers.status and self._restoring is None and self.is_remote_closed:
            block = trailers.block + self.context.decision(attempt.decision) + self.name
            if self.link.send_all(self, head.block, piece, block):
                choice = attempt.choice
                if choice is not None and choice.mirror is not None:
                    faults.contained(self, self._copy_call, choice, piece)
                self.is_ended = True
                self.answered = len(piece)
                self._leg = self.source = self._pieces = None
                self.context.board.held -= self._held
                self._held = 0
                attempt.answered(0, good=True)
                if self._copy is not None:
                    faults.contained(self, self._mirror, self._copy)
                return
        self.on_answer(leg, piece)
        self.on_trailers(leg, trailers)

    def _executed(self, leg: UpstreamLeg) -> None:
        """The head of the answer goes to the client: there is nothing to repeat any more."""
        leg.head = None
        self.is_head_sent = True
        self._release()

    def _copy_call(self, choice: Choice, answer: Piece) -> None:
        """Make a copy of the call, if it is one of those to be mirrored.

        `answer` is the answer, or the first piece of it.
        """
        mirrors = self.context.gateway.mirrors
        if mirrors is None or self.head.verb is not Verb.INFER or not mirrors.wants(choice):
            return
        if self._pieces is None or not self.is_remote_closed:
            mirrors.drop(choice, "too_large" if self._pieces is None else "incomplete")
            return
        message = b"".join(self._pieces)[PREFIX_SIZE:]
        response = None
        if len(answer) >= PREFIX_SIZE:
            flag, length = PREFIX.unpack_from(answer)
            if not flag and len(answer) == PREFIX_SIZE + length:
                response = Reply(0, bytes(answer[PREFIX_SIZE:]))
        head, size = self.head.plain, len(message)
        self._copy = MirroredCall(choice, "grpc", head, (message,), size, response)

    def _mirror(self, copy: MirroredCall) -> None:
        """Offer the copy, once the client has got its answer."""
        self._copy = None
        if (mirrors := self.context.gateway.mirrors) is not None:
            mirrors.offer(copy)

    def _is_refused(self, attempt: Attempt, status: int, message: str) -> bool:
        """Whether the call goes on to another replica."""
        can_repeat = self._pieces is not None and self.is_remote_closed
        try:
            if not attempt.refused(Reply(status, b"", (), message), can_repeat=can_repeat):
                return False
            self._sent_at, self._answered_at = self.context.clock(), 0.0
            self._send_all()
        except NotLoaded as error:
            self._wait_loaded(attempt, error)
        except ServegateError as error:
            self.fail(error)
        return True

    # --- the end ----------------------------------------------------------------------------------

    def give_up(self, error: ServegateError | None) -> None:
        """See `ClientCall`."""
        attempt, leg = self._attempt, self._leg
        self._leg = self.source = None
        arriving, self._arriving, self._whole = self._arriving, None, None
        self._release()
        if attempt is None:
            if arriving is not None:
                code = "client_left" if error is None else error.code
                gateway = self.context.gateway
                gateway.ended(arriving.call, None, NOWHERE, code, arriving.since, error=code)
            return
        if leg is not None:
            until = attempt.begun + self.context.longest
            self.let_go(leg, attempt, is_whole=leg.is_local_closed, until=until)
        if error is None:
            attempt.left()
        else:
            attempt.failed(error)

    def reply_to(self, error: ServegateError) -> Reply:
        """To Triton a model that is not there is not ready, which is no error."""
        told = not_ready("grpc", error) if self.head.verb is Verb.READY else None
        return told or super().reply_to(error)
