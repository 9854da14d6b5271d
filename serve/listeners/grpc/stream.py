"""ModelStreamInfer: every message is a call of its own, the answers are merged into one stream.

Theory. Messages are routed one by one, in their order. Each goes to a branch, the stream to its
model on the replica that the gateway chose; a branch opens with its first message. While it is
being connected, everything behind it waits in `_inbox`. Answers of several branches are merged at
the borders of messages: one branch has the floor until its message is complete and has gone out.

    client ── message ──▶ _inbox ──▶ route ──▶ branch a ──▶ replica a
                                       │   └─▶ branch b ──▶ replica b
                                       ▼ not routed
    client ◀── merge ◀── floor ◀── own errors │ a │ b

A message that cannot be routed is answered in the stream, as Triton does, and the stream goes on;
with the metadata `triton_grpc_error: true` it ends the stream. The client's end ends all branches;
the stream ends well when they all have, and badly with the first that does.
"""

from collections import deque

from serve.core.calls import Call, Verb
from serve.core.errors import BadRequest, BodyTooLarge, NotSent, OutcomeUnknown, ServegateError
from serve.core.snapshot import Target
from serve.listeners.grpc.branch import Branch, Share, branch_key
from serve.listeners.grpc.desk import ClientLink, Desk
from serve.listeners.grpc.merging import MergedCall
from serve.listeners.grpc.restoring import StreamRestoring
from serve.proxy.attempts import Attempt
from serve.wire import kserve_grpc, protobuf
from serve.wire.grpc_messages import PREFIX, PREFIX_SIZE, Messages, inflate, read_prefix
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2_stream import Piece

_FRONT = 1 << 12  # bytes of a message in which the names are looked for while it comes


class StreamCall(MergedCall):
    """One call of ModelStreamInfer."""

    __slots__ = (
        "_error",
        "_front",
        "_front_held",
        "_inbox",
        "_into",
        "_is_holding",
        "_is_skipping",
        "_last_replica",
        "_messages",
        "_prefix",
        "_renamed",
        "_stalled",
        "_suffix",
        "_walk",
    )

    def __init__(self, link: ClientLink, number: int, desk: Desk, head: RequestHead) -> None:
        super().__init__(link, number, desk, head)
        self.deadline = desk.clock() + head.timeout  # streams may live long
        self._messages = Messages()
        self._inbox: deque[tuple[bytes, Piece, bool]] = deque()
        self._stalled: Branch | None = None  # waits for its connection, and all behind it
        self._prefix = b""  # of the message that is not routed yet
        self._front: list[Piece] = []  # what has come of it
        self._front_held = 0  # bytes of it that the board counts
        self._error: ServegateError | None = None  # it was refused, and its id is not known yet
        self._is_holding = self._is_skipping = False  # it is read as a whole; the rest is dropped
        self._into: Branch | None = None  # where it goes
        self._suffix = b""  # what is appended to it
        self._walk = protobuf.Walk()  # over it
        self._renamed: dict[str, Target] = {}  # versions that Triton knows by other names
        self._last_replica = ""

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
            self._prefix, self._front = prefix, []
            self._is_skipping = self._is_holding = False
            if read_prefix(prefix)[1] > self.desk.limits.body:
                raise BodyTooLarge(self.desk.limits.body)
        if self._into is not None:
            self._pass_on(self._into, part, is_last)
        elif self._is_skipping:
            self.consume(len(part))
        else:
            self._front.append(part)
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
        if (flag or self._is_holding) and not is_last:
            self._hold_front(len(part))
            return
        body = b"".join(self._front)
        if self._error is not None:
            self._refuse(self._error, body, is_last)
            return
        if flag:
            limits = self.desk.limits
            body = inflate(body, self.head.encoding, min(limits.inflated, limits.body))
            length = len(body)
        found = protobuf.whole_names(body, 0) if is_last else protobuf.names(body, 0, length)
        key = self.head.authorization
        stateful = found is not None and self.desk.serves_sequences(found[0], key)
        if is_last and stateful:
            seen = protobuf.peek(body, infer=True)
            stateful = bool(seen.sequence) and self.desk.serves_sequences(seen.model, key)
            self._route(seen.model, seen.version, seen.sequence if stateful else "", body, True)
        elif found is not None and not stateful:
            self._route(found[0], found[1], "", body, is_last)
        elif found is not None or len(body) >= _FRONT:
            self._hold_front(len(body))

    def _hold_front(self, count: int) -> None:
        """The message has to be read as a whole: its credit goes back as it comes."""
        self._is_holding = True
        self._front_held += count
        self.hold(count)
        self.consume(count)
        self.check_room()

    def _route(self, model: str, version: str, sequence: str, body: bytes, is_last: bool) -> None:
        """Send the message to the replica that the gateway chooses, or refuse it."""
        length = len(body) if is_last else read_prefix(self._prefix)[1]
        share = Share(self, length)
        try:
            self.check_room()
            attempt = self.desk.gateway.begin(self._call(model, version, sequence, share))
        except ServegateError as error:
            if self.head.ends_on_error:
                raise
            self._refuse(error, body, is_last)
            return
        self._let_go_of_front()
        self._suffix = b""
        choice = attempt.choice
        if choice is not None:
            self._suffix = self.desk.names(choice)
            if choice.is_renamed:
                self._renamed[choice.target.physical_name] = choice.target
        branch = self._branch(attempt, share)
        start = PREFIX.pack(0, length + len(self._suffix)) + body
        if is_last:
            branch.send(start + self._suffix, is_last=True)
        else:
            branch.send(start, is_last=False)
            self._into, self._walk = branch, protobuf.Walk()
            self._walk.follow(body)
        if branch.leg is None:
            self._connect(branch)

    def _call(self, model: str, version: str, sequence: str, share: Share) -> Call:
        version = kserve_grpc.selector_of(version) if version else ""
        prefer, key = self._last_replica, self.head.authorization
        return Call(
            "grpc", Verb.STREAM, model, version, self.deadline, sequence, prefer, key, share
        )

    def _refuse(self, error: ServegateError, body: bytes, is_last: bool) -> None:
        """Answer one message with an error, as soon as its id is known; the stream goes on."""
        request_id = protobuf.request_id(body, is_whole=is_last)
        if request_id is None:
            self._error = error
            return
        self._error = None
        self._is_skipping = True
        if not self._front_held:
            self.consume(len(body))
        self._let_go_of_front()
        self.say_error(error, request_id)

    def _let_go_of_front(self) -> None:
        self.hold(-self._front_held)
        self._front, self._front_held = [], 0

    # --- branches ---------------------------------------------------------------------------------

    def _branch(self, attempt: Attempt, share: Share) -> Branch:
        """The branch for the model of this attempt; a new one keeps the attempt open."""
        self._last_replica = attempt.replica.name
        key = branch_key(attempt)
        branch = self.branches.get(key)
        if branch is not None and branch.trailers is not None:
            error = OutcomeUnknown(f"replica {self._last_replica} has ended the stream")
            attempt.failed(error)
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
        upstream = self.desk.pool.find(replica)
        if upstream is None:
            self._stalled = branch
            self.desk.pool.wait(replica, branch)
        else:
            branch.on_connected(upstream)

    def on_branch_connected(self, branch: Branch) -> None:
        """See `Trunk`."""
        if self._stalled is branch:
            self._stalled = None
            self._work()

    def on_branch_lost(self, branch: Branch, error: NotSent | OutcomeUnknown) -> None:
        """See `Trunk`. What was provably not executed goes to another replica."""
        self.branches.pop(branch.key, None)
        if self._stalled is branch:
            self._stalled = None
        if isinstance(error, NotSent) and branch.kept is not None:
            self._go_elsewhere(branch, branch.kept, error)
            self._work()
            return
        if isinstance(error, NotSent):
            error = OutcomeUnknown(error.what, why="more than one message had been sent")
        branch.attempt.failed(error)
        branch.drop()
        self.fail(error)

    def _go_elsewhere(self, branch: Branch, kept: list[Piece], error: NotSent) -> None:
        attempt = branch.attempt
        try:
            attempt.not_sent(error)
        except ServegateError as final:
            branch.drop()
            if self._into is branch:
                self._into, self._is_skipping = None, True
            if self.head.ends_on_error:
                self.fail(final)
            else:
                request_id = protobuf.request_id(b"".join(kept[:2])[PREFIX_SIZE:], is_whole=True)
                self.say_error(final, request_id or b"")
            return
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

    def give_up(self, error: ServegateError | None) -> None:
        """See `ClientCall`."""
        self._inbox.clear()
        self._stalled = self._into = None
        super().give_up(error)
