"""ModelStreamInfer: every message is a call of its own, the answers are merged into one stream.

Theory. Messages are routed one by one, in their order. Each goes to a branch, the stream to its
model on the replica that the gateway chose; a branch opens with its first message. While it is
being connected, everything behind it waits in `_inbox`.

    client ── message ──▶ _inbox ──▶ route ──▶ branch a ──▶ replica a
                                     ▲ │   └─▶ branch b ──▶ replica b
                           awake ── Sleep
                                       ▼ not routed
    client ◀── merge ◀── floor ◀── own errors │ a │ b

A message that cannot be routed is answered in the stream, as Triton does, and the stream goes on;
with the metadata `triton_grpc_error: true` it ends the stream. The client's end ends all branches;
the stream ends well when they all have, and badly with the first that does.

Answers: only whole messages may be mixed. A branch that has the floor keeps it until its message is
complete and has gone out to the client; then the next branch that has something to say gets it.
What has to wait is held, and its credit with it: a client that reads slowly slows its own branches
down, and no others.
"""

from collections import deque
from collections.abc import Callable

from serve.core.calls import Call, Reply, Verb
from serve.core.errors import (
    Asleep,
    BadRequest,
    BodyTooLarge,
    NotSent,
    OutcomeUnknown,
    ServegateError,
)
from serve.core.limits import FIRST, SMALL
from serve.core.snapshot import VersionTarget
from serve.listeners.grpc.branch import Branch, BranchAccount, branch_key
from serve.listeners.grpc.call import ClientCall
from serve.listeners.grpc.context import ClientLink, GrpcContext
from serve.listeners.grpc.model_names import StreamRestoring
from serve.proxy.attempts import Attempt
from serve.triton.grpc_upstream import Upstream, UpstreamLeg
from serve.wire import kserve_grpc, protobuf
from serve.wire.grpc_heads import OK_HEAD, OK_TRAILERS, AnswerHead, error_block
from serve.wire.grpc_messages import (
    PREFIX,
    PREFIX_SIZE,
    MessageCutter,
    inflate,
    message,
    read_prefix,
)
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece


class Sleep:
    """A message whose model's pool has been scaled to zero: what has come of it.

    It waits, and all that follows it in its stream waits behind it. See `proxy/waiting_calls.py`.
    """

    __slots__ = ("_attempt", "_stream", "body", "is_last", "share")

    def __init__(
        self, stream: "StreamCall", call: Call, share: BranchAccount, body: bytes, is_last: bool
    ) -> None:
        self.share = share
        self.body = body
        self.is_last = is_last
        self._stream = stream
        self._attempt = stream.context.gateway.wait(call, self)

    def __repr__(self) -> str:
        return f"<Sleep {self._attempt!r}>"

    def on_awake(self, attempt: Attempt) -> None:
        """See `Waiter`."""
        self._stream.on_message_awake(self, attempt)

    def on_asleep(self, error: ServegateError) -> None:
        """See `Waiter`."""
        self._stream.on_message_asleep(self, error)

    def on_fault(self, error: Exception) -> None:
        """See `Waiter`."""
        self._stream.on_fault(error)

    def end(self, error: ServegateError | None) -> None:
        """The stream has ended; without an error, because the client has gone."""
        if error is None:
            self._attempt.left()
        else:
            self._attempt.failed(error)


class StreamCall(ClientCall):
    """One call of ModelStreamInfer.

    `is_asked` says that the client has ended and all that it asked has been sent.
    """

    __slots__ = (
        "_error",
        "_floor",
        "_front",
        "_front_held",
        "_front_size",
        "_held",
        "_inbox",
        "_into",
        "_is_holding",
        "_is_skipping",
        "_last_replica",
        "_messages",
        "_own",
        "_prefix",
        "_renamed",
        "_stalled",
        "_suffix",
        "_walk",
        "branches",
        "decision",
        "is_asked",
    )

    def __init__(
        self, link: ClientLink, number: int, context: GrpcContext, head: RequestHead
    ) -> None:
        super().__init__(link, number, context, head)
        self.branches: dict[tuple[str, str], Branch] = {}  # by replica and model
        self.decision = ""
        self.is_asked = False
        self._floor: Branch | None = None
        self._own: deque[bytes] = deque()  # whole messages of ours
        self._held = 0  # bytes that the board counts for this call
        self._stalled: object | None = None  # waits for a replica, and all messages behind it
        self._into: Branch | None = None  # where the present message goes
        self._is_skipping = False  # the rest of it is dropped
        self._renamed: dict[str, VersionTarget] = {}  # versions that Triton knows by other names
        self._last_replica = ""
        self.deadline = context.clock() + head.timeout  # streams may live long
        self._messages = MessageCutter()
        self._inbox: deque[tuple[bytes, Piece, bool]] = deque()
        self._prefix = b""  # of the message that is not routed yet
        self._front: list[Piece] = []  # what has come of it
        self._front_size = 0  # bytes of it
        self._front_held = 0  # bytes of it that the board counts
        self._error: ServegateError | None = None  # it was refused, and its id is not known yet
        self._is_holding = False  # it is read as a whole
        self._suffix = b""  # what is appended to it
        self._walk = protobuf.FieldWalk()  # over it

    @property
    def has_begun(self) -> bool:
        """See `ClientCall`."""
        return bool(self._last_replica)

    def sweep(self, now: float) -> None:
        """A replica that leaves gets no more of a stream that goes on; it says what it owes."""
        super().sweep(now)
        has = self.context.gateway.has
        for branch in tuple(self.branches.values()):
            is_between = branch.may_leave and branch is not self._into
            if is_between and not has(branch.attempt.replica):
                self._leave(branch)

    def now(self) -> float:
        """Seconds, by the gateway's clock."""
        return self.context.clock()

    def hold(self, count: int) -> None:
        """So many more bytes are held for this call."""
        self._held += count
        self.context.board.held += count

    # --- requests ---------------------------------------------------------------------------------

    @property
    def owes(self) -> bool:
        """Between messages a client may take its time."""
        return not self.is_remote_closed and not self._messages.is_between

    def on_data(self, piece: Piece, end: int) -> None:
        """Pieces of messages, cut anywhere."""
        self.received += len(piece)
        if self.is_ended:
            return
        try:
            self._inbox.extend(self._messages.cut(piece))
            if end and not self._messages.is_between:
                raise BadRequest("the stream ended inside a message")
        except BadRequest as error:
            self.fail(error)
        self._work()

    def _work(self) -> None:
        """Route and send what has come, up to a branch that has to wait for its connection."""
        try:
            while self._inbox and self._stalled is None and not self.is_ended:
                self._take(*self._inbox.popleft())
        except ServegateError as error:
            self.fail(error)
        self.is_asked = self.is_remote_closed and not self._inbox and self._stalled is None
        if self.is_asked and not self.is_ended:
            for branch in self.branches.values():
                branch.half_close()
        self.merge()

    def _take(self, prefix: bytes, part: Piece, is_last: bool) -> None:
        if prefix:
            self._prefix, self._front, self._front_size = prefix, [], 0
            self._is_skipping = self._is_holding = False
            if read_prefix(prefix)[1] > self.context.limits.body:
                raise BodyTooLarge(self.context.limits.body)
        if self._into is not None:
            self._pass_on(self._into, part, is_last)
        elif self._is_skipping:
            self.consume(len(part))
        else:
            self._front.append(part)
            self._front_size += len(part)
            self._look(part, is_last)

    def _pass_on(self, branch: Branch, part: Piece, is_last: bool) -> None:
        self._walk.follow(part)
        if is_last:
            self._walk.finish()
        branch.send(part, is_last=is_last and not self._suffix)
        if is_last:
            self._into = None
            if self._suffix:
                branch.send(self._suffix, is_last=True)

    def _look(self, part: Piece, is_last: bool) -> None:
        """See whether the present message can be routed by what has come of it."""
        flag, length = read_prefix(self._prefix)
        has_to_wait = self._error is None and (self._front_size < FIRST or length <= SMALL)
        if (flag or has_to_wait or self._is_holding) and not is_last:
            self._hold_front(len(part))
            return
        body = b"".join(self._front)
        if self._error is not None:
            self._refuse(self._error, body, is_last)
            return
        if flag:
            limits = self.context.limits
            body = inflate(body, self.head.encoding, min(limits.inflated, limits.body))
            length = len(body)
        found = protobuf.whole_names(body, 0) if is_last else protobuf.names(body, 0, length)
        key = self.head.authorization
        stateful = found is not None and self.context.serves_sequences(found[0], key)
        if is_last and stateful:
            seen = protobuf.peek(body, infer=True)
            stateful = bool(seen.sequence) and self.context.serves_sequences(seen.model, key)
            self._route(seen.model, seen.version, seen.sequence if stateful else "", body, True)
        elif found is not None and not stateful:
            self._route(found[0], found[1], "", body, is_last)
        else:
            self._is_holding = True  # it has to be read as a whole
            self._hold_front(len(part))

    def _hold_front(self, count: int) -> None:
        """It cannot be sent yet, and takes no slot: its credit goes back as it comes."""
        self._front_held += count
        self.hold(count)
        self.consume(count)
        self.check_room()

    def _route(self, model: str, version: str, sequence: str, body: bytes, is_last: bool) -> None:
        """Send the message to the replica that the gateway chooses, or refuse it."""
        share = BranchAccount(self, len(body) if is_last else read_prefix(self._prefix)[1])
        try:
            self.check_room()
            selector = kserve_grpc.selector_of(version) if version else ""
            until, prefer, key = self.deadline, self._last_replica, self.head.authorization
            call = Call("grpc", Verb.STREAM, model, selector, until, sequence, prefer, key, share)
            try:
                attempt = self.context.gateway.begin(call)
            except Asleep:
                self.check_room(to_sleep=True)
                self._stalled = Sleep(self, call, share, body, is_last)
                return
        except ServegateError as error:
            if self.head.ends_on_error:
                raise
            self._refuse(error, body, is_last)
            return
        self._send(attempt, share, body, is_last)

    def _send(self, attempt: Attempt, share: BranchAccount, body: bytes, is_last: bool) -> None:
        """Send a message, of which this has come, to the replica of the attempt."""
        self._let_go_of_front()
        self._suffix = b""
        choice = attempt.choice
        if choice is not None:
            self._suffix = self.context.names(choice)
            if choice.is_renamed:
                self._renamed[choice.target.physical_name] = choice.target
        length = share.received
        branch = self._branch(attempt, share)
        start = PREFIX.pack(0, length + len(self._suffix)) + body
        if is_last:
            branch.send(start + self._suffix, is_last=True)
        else:
            branch.send(start, is_last=False)
            self._into, self._walk = branch, protobuf.FieldWalk()
            self._walk.follow(body)
        if branch.leg is None:
            self._connect(branch)

    def _refuse(self, error: ServegateError, body: bytes, is_last: bool) -> None:
        """Answer one message with an error, as soon as its id is known; the stream goes on."""
        request_id = protobuf.request_id(body, is_whole=is_last)
        if request_id is None:
            self._error = error
            return
        self._error = None
        self._is_skipping = True
        self.consume(max(0, self._front_size - self._front_held))
        self._let_go_of_front()
        self.say_error(error, request_id)

    def _let_go_of_front(self) -> None:
        self.hold(-self._front_held)
        self._front, self._front_size, self._front_held = [], 0, 0

    # --- a message whose model's pool sleeps ------------------------------------------------------

    def on_message_awake(self, sleep: Sleep, attempt: Attempt) -> None:
        """There is a replica for the message: go on with it, and with what waits behind it."""
        self._stalled = None
        try:
            self._send(attempt, sleep.share, sleep.body, sleep.is_last)
        except ServegateError as error:
            self.fail(error)
        self._work()

    def on_message_asleep(self, sleep: Sleep, error: ServegateError) -> None:
        """There will be none: the message is refused, and the stream goes on."""
        self._stalled = None
        if self.head.ends_on_error:
            self.fail(error)
            return
        self._refuse(error, sleep.body, sleep.is_last)
        self._work()

    # --- branches ---------------------------------------------------------------------------------

    def _branch(self, attempt: Attempt, share: BranchAccount) -> Branch:
        """The branch for the model of this attempt; a new one keeps the attempt open."""
        self._last_replica = attempt.replica.name
        key = branch_key(attempt)
        branch = self.branches.get(key)
        if branch is not None and branch.trailers is not None:
            error = OutcomeUnknown(f"replica {self._last_replica} ended the stream")
            attempt.failed(error, by_replica=False)
            raise error
        if branch is not None:
            branch.release()  # only one message can be repeated
            branch.share.received += share.received
            attempt.passed_on()
            return branch
        self.decision = self.decision or attempt.decision
        branch = self.branches[key] = Branch(self, attempt, StreamRestoring(self._renamed), share)
        return branch

    def _connect(self, branch: Branch) -> None:
        replica = branch.attempt.replica
        upstream = self.context.pool.find(replica)
        if upstream is None:
            self._stalled = branch
            self.context.pool.wait(replica, branch)
        else:
            branch.on_connected(upstream)

    def open_leg(self, branch: Branch, upstream: Upstream, piece: Piece) -> UpstreamLeg:
        """A stream on this connection. Answers are read here, so they must not come compressed."""
        block = self.head.plain + self.context.timeout(upstream.replica, self.deadline)
        return upstream.open(branch, block, piece, 0, self)

    def on_branch_connected(self, branch: Branch) -> None:
        """The branch takes more now."""
        if self._stalled is branch:
            self._stalled = None
            self._work()

    def on_branch_lost(self, branch: Branch, error: NotSent | OutcomeUnknown) -> None:
        """The branch has broken: what was provably not executed goes to another replica."""
        self.branches.pop(branch.key, None)
        if self._stalled is branch:
            self._stalled = None
        if isinstance(error, NotSent) and branch.kept is not None:
            self._go_elsewhere(branch, branch.kept, error)
            self._work()
            return
        if isinstance(error, NotSent):
            error = OutcomeUnknown(
                error.what, why="the stream had already sent more than one message"
            )
        branch.attempt.failed(error)
        branch.drop()
        self.fail(error)

    def on_branch_refused(self, branch: Branch, reply: Reply) -> bool:
        """The first message was answered with an error; whether that is dealt with here.

        A replica that has not loaded the model is replaced by another one. There is no waiting for
        it here: the messages behind this one would wait as well.
        """
        attempt, kept, key, final = branch.attempt, branch.kept, branch.key, None
        if kept is None or not branch.is_whole:
            return False
        try:
            if not attempt.refused(reply, can_wait=False):
                return False
        except ServegateError as error:
            final = error
        del self.branches[key]
        leg, branch.leg = branch.leg, None
        if leg is not None and not leg.is_remote_closed:  # it waits for more, and works on nothing
            leg.source = None
            if not leg.is_local_closed and not leg.ends:
                leg.link.send_data(leg, b"", END_STREAM)
            self.context.pool.absorb(leg)
        if final is None:
            self._send_again(branch, kept)
        else:
            self._fail_kept(branch, kept, final)
        self._work()
        return True

    def _go_elsewhere(self, branch: Branch, kept: list[Piece], error: NotSent) -> None:
        try:
            branch.attempt.not_sent(error)
        except ServegateError as final:
            self._fail_kept(branch, kept, final)
        else:
            self._send_again(branch, kept)

    def _fail_kept(self, branch: Branch, kept: list[Piece], final: ServegateError) -> None:
        branch.drop()
        if self._into is branch:
            self._into, self._is_skipping = None, True
        if self.head.ends_on_error:
            self.fail(final)
        else:
            request_id = protobuf.request_id(b"".join(kept[:2])[PREFIX_SIZE:], is_whole=True)
            self.say_error(final, request_id or b"")

    def _send_again(self, branch: Branch, kept: list[Piece]) -> None:
        """Send what was kept to the replica that the attempt has come to."""
        attempt = branch.attempt
        other = self.branches.get(branch.key)
        if other is None:
            self._last_replica = attempt.replica.name
            self.branches[branch.key] = branch
            self._connect(branch)
            return
        attempt.passed_on()
        branch.drop()
        other.release()
        for piece in kept:
            other.send(piece, is_last=False)
        other.is_whole = branch.is_whole
        if self._into is branch:
            self._into = other

    def _leave(self, branch: Branch) -> None:
        del self.branches[branch.key]
        branch.is_leaving = True
        if branch.key in self.branches:  # it came back, and leaves once more: one after the other
            branch.is_leaving = False
            self.branches[branch.key] = branch
            return
        self.branches[branch.key] = branch
        branch.half_close()

    # --- answers ----------------------------------------------------------------------------------

    def say(self, whole: bytes) -> None:
        """A message of our own, when its turn comes."""
        self.hold(len(whole))
        self._own.append(whole)

    def say_error(self, error: ServegateError, request_id: bytes) -> None:
        """One request has failed, and the stream goes on."""
        self.say(message(kserve_grpc.stream_error(str(error), request_id)))

    def on_branch_answer(self, branch: Branch, head: AnswerHead | None) -> None:
        """A branch has something to say. The first head of one is that of the whole answer."""
        if head is not None and not self.is_head_sent:
            self._send_head(head.block)
        self.merge()

    def on_drained(self) -> None:
        """What had the floor has gone out."""
        self.merge()

    def merge(self) -> None:
        """Pass on what can be, until the client has to take it first."""
        while not self.is_ended and not self.queue:
            branch = self._floor
            if branch is None:
                if self._own:
                    self._send_own()
                    continue
                branch = self._next()
                if branch is None:
                    break
            if branch.said:
                self._pass_said(branch)
            elif branch.trailers is None:
                break  # in the middle of a message
            else:
                self._end_branch(branch, branch.trailers)
        if self.is_asked and not self.is_ended and not (self.branches or self._own):
            self._finish(OK_TRAILERS if self.is_head_sent else OK_HEAD + OK_TRAILERS)

    def _next(self) -> Branch | None:
        """Who gets the floor: one who has something to say, or else one who has ended."""
        said = (branch for branch in self.branches.values() if branch.said)
        over = (branch for branch in self.branches.values() if branch.trailers is not None)
        return next(said, None) or next(over, None)

    def _pass_said(self, branch: Branch) -> None:
        piece, is_last = branch.said.popleft()
        self.hold(-len(piece))
        self._floor = None if is_last else branch
        self.source = branch.leg
        self.link.send_data(self, piece)

    def _send_own(self) -> None:
        whole = self._own.popleft()
        self.hold(-len(whole))
        if not self.is_head_sent:
            self._send_head(OK_HEAD)
        self.source = None
        self.link.send_data(self, whole)

    def _send_head(self, block: bytes) -> None:
        self.is_head_sent = True
        self.link.send_head(self, block)

    # --- the end ----------------------------------------------------------------------------------

    def _end_branch(self, branch: Branch, trailers: AnswerHead) -> None:
        """A branch has ended: well, and the others go on, or badly, and the stream ends with it."""
        self._floor = None
        del self.branches[branch.key]
        status = trailers.status
        if not status and not branch.is_between:
            error = OutcomeUnknown("the responses ended inside a message")
            branch.attempt.failed(error)
            self.fail(error)
            return
        branch.attempt.answered(status, good=status == 0)
        if not status and (self.branches or not self.is_asked):
            return
        block = trailers.block
        if trailers.http >= 0 and self.is_head_sent:  # a head of its own came with them
            block = error_block(Reply(status, b"", (), trailers.message), with_head=False)
        self.is_ended = True
        self._drop_branches(  # it is the answer to them all
            lambda other: other.answered(status, good=False, by_replica=False)
        )
        self._finish(block)

    def _finish(self, trailers: bytes) -> None:
        """The end of the answers: no branch is left, and no message waits."""
        self._forget(None)
        self.is_ended = True
        self.source = None
        self._drop_own()
        self.end_with(trailers + self.context.decision(self.decision))

    def give_up(self, error: ServegateError | None) -> None:
        """See `ClientCall`."""
        self._forget(error)
        self._drop_branches(
            Attempt.left if error is None else lambda one: one.failed(error, by_replica=False)
        )
        self._drop_own()

    def _drop_branches(self, end: Callable[[Attempt], None]) -> None:
        """Branches that still run have lost their client."""
        branches, self.branches = self.branches, {}
        self._floor = self.source = None
        until = self.now() + self.context.longest  # the stream itself may be older
        for branch in branches.values():
            leg, branch.leg = branch.leg, None
            branch.drop()
            if leg is not None:
                self.let_go(leg, branch.attempt, is_whole=branch.is_whole, until=until)
            end(branch.attempt)

    def _drop_own(self) -> None:
        self._own.clear()
        self.hold(-self._held)

    def _forget(self, error: ServegateError | None) -> None:
        self._inbox.clear()
        stalled, self._stalled, self._into = self._stalled, None, None
        if isinstance(stalled, Sleep):
            stalled.end(error)
