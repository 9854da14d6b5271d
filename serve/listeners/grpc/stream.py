"""ModelStreamInfer: every message is a call of its own, the answers are merged into one stream.

Theory. Messages are routed one by one, in their order. Each goes to a branch, the stream to its
model on the replica that the gateway chose; a branch opens with its first message. While it is
being connected, everything behind it waits in `_inbox`. Answers of several branches are merged at
the borders of messages: one branch has the floor until its message is complete and has gone out.

    client ── message ──▶ _inbox ──▶ route ──▶ branch a ──▶ replica a
                                     ▲ │   └─▶ branch b ──▶ replica b
                           awake ── Sleep
                                       ▼ not routed
    client ◀── merge ◀── floor ◀── own errors │ a │ b

A message that cannot be routed is answered in the stream, as Triton does, and the stream goes on;
with the metadata `triton_grpc_error: true` it ends the stream. The client's end ends all branches;
the stream ends well when they all have, and badly with the first that does.
"""

from collections import deque

from serve.core.calls import Call, Verb
from serve.core.errors import Asleep, BadRequest, BodyTooLarge, ServegateError
from serve.core.limits import FIRST, SMALL
from serve.listeners.grpc.branch import Branch, Share
from serve.listeners.grpc.branching import BranchedCall
from serve.listeners.grpc.desk import ClientLink, Desk
from serve.listeners.grpc.sleeping import Sleep
from serve.proxy.attempts import Attempt
from serve.wire import kserve_grpc, protobuf
from serve.wire.grpc_messages import PREFIX, Messages, inflate, read_prefix
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2_stream import Piece


class StreamCall(BranchedCall):
    """One call of ModelStreamInfer."""

    __slots__ = (
        "_error",
        "_front",
        "_front_held",
        "_front_size",
        "_inbox",
        "_is_holding",
        "_messages",
        "_prefix",
        "_suffix",
        "_walk",
    )

    def __init__(self, link: ClientLink, number: int, desk: Desk, head: RequestHead) -> None:
        super().__init__(link, number, desk, head)
        self.deadline = desk.clock() + head.timeout  # streams may live long
        self._messages = Messages()
        self._inbox: deque[tuple[bytes, Piece, bool]] = deque()
        self._prefix = b""  # of the message that is not routed yet
        self._front: list[Piece] = []  # what has come of it
        self._front_size = 0  # bytes of it
        self._front_held = 0  # bytes of it that the board counts
        self._error: ServegateError | None = None  # it was refused, and its id is not known yet
        self._is_holding = False  # it is read as a whole
        self._suffix = b""  # what is appended to it
        self._walk = protobuf.Walk()  # over it

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
            if read_prefix(prefix)[1] > self.desk.limits.body:
                raise BodyTooLarge(self.desk.limits.body)
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
        share = Share(self, len(body) if is_last else read_prefix(self._prefix)[1])
        try:
            self.check_room()
            selector = kserve_grpc.selector_of(version) if version else ""
            until, prefer, key = self.deadline, self._last_replica, self.head.authorization
            call = Call("grpc", Verb.STREAM, model, selector, until, sequence, prefer, key, share)
            try:
                attempt = self.desk.gateway.begin(call)
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

    def _send(self, attempt: Attempt, share: Share, body: bytes, is_last: bool) -> None:
        """Send a message, of which this has come, to the replica of the attempt."""
        self._let_go_of_front()
        self._suffix = b""
        choice = attempt.choice
        if choice is not None:
            self._suffix = self.desk.names(choice)
            if choice.is_renamed:
                self._renamed[choice.target.physical_name] = choice.target
        length = share.received
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

    def on_awake(self, sleep: Sleep, attempt: Attempt) -> None:
        """There is a replica for the message: go on with it, and with what waits behind it."""
        self._stalled = None
        try:
            self._send(attempt, sleep.share, sleep.body, sleep.is_last)
        except ServegateError as error:
            self.fail(error)
        self._work()

    def on_asleep(self, sleep: Sleep, error: ServegateError) -> None:
        """There will be none: the message is refused, and the stream goes on."""
        self._stalled = None
        if self.head.ends_on_error:
            self.fail(error)
            return
        self._refuse(error, sleep.body, sleep.is_last)
        self._work()

    def give_up(self, error: ServegateError | None) -> None:
        """See `ClientCall`."""
        self._forget(error)
        super().give_up(error)

    def _finish(self, trailers: bytes) -> None:
        """See `MergedCall`. Nothing waits for its turn any more."""
        self._forget(None)
        super()._finish(trailers)

    def _forget(self, error: ServegateError | None) -> None:
        self._inbox.clear()
        stalled, self._stalled, self._into = self._stalled, None, None
        if isinstance(stalled, Sleep):
            stalled.end(error)
