"""The answers of a stream: several branches and the gateway itself, merged into one.

Only whole messages may be mixed. Who has the floor keeps it until its message is complete and has
gone out to the client; then the next who has something to say gets it. What has to wait is held,
and its credit with it: a client that reads slowly slows its branches down, and nobody else.
"""

from collections import deque
from collections.abc import Callable

from serve.core.calls import Reply
from serve.core.errors import OutcomeUnknown, ServegateError
from serve.listeners.grpc.branch import Branch
from serve.listeners.grpc.call import ClientCall
from serve.listeners.grpc.desk import ClientLink, Desk
from serve.proxy.attempts import Attempt
from serve.triton.grpc_upstream import Leg, Upstream
from serve.wire import kserve_grpc
from serve.wire.grpc_heads import OK_HEAD, OK_TRAILERS, AnswerHead, error_block
from serve.wire.grpc_messages import message
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2_stream import Piece


class MergedCall(ClientCall):
    """What a stream says to its client.

    `is_asked` says that the client has ended and all that it asked has been sent.
    """

    __slots__ = ("_floor", "_held", "_own", "branches", "decision", "is_asked")

    def __init__(self, link: ClientLink, number: int, desk: Desk, head: RequestHead) -> None:
        super().__init__(link, number, desk, head)
        self.branches: dict[tuple[str, str], Branch] = {}  # by replica and model
        self.decision = ""
        self.is_asked = False
        self._floor: Branch | None = None
        self._own: deque[bytes] = deque()  # whole messages of ours
        self._held = 0  # bytes that the board counts for this call

    def say(self, whole: bytes) -> None:
        """A message of our own, when its turn comes."""
        self.hold(len(whole))
        self._own.append(whole)

    def say_error(self, error: ServegateError, request_id: bytes) -> None:
        """One request has failed, and the stream goes on."""
        self.say(message(kserve_grpc.stream_error(str(error), request_id)))

    def now(self) -> float:
        """See `Trunk`."""
        return self.desk.clock()

    def hold(self, count: int) -> None:
        """So many more bytes are held for this call."""
        self._held += count
        self.desk.board.held += count

    def open_leg(self, branch: Branch, upstream: Upstream, piece: Piece) -> Leg:
        """See `Trunk`. Answers are read here, so they must not come compressed."""
        block = self.head.plain + self.desk.timeout(upstream.replica, self.deadline)
        return upstream.open(branch, block, piece, 0, self)

    def on_branch_answer(self, branch: Branch, head: AnswerHead | None) -> None:
        """See `Trunk`. The first head of a branch is that of the whole answer."""
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

    # --- ends -------------------------------------------------------------------------------------

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
        """The end of the answers. No branch is left."""
        self.is_ended = True
        self.source = None
        self._drop_own()
        self.end_with(trailers + self.desk.decision(self.decision))

    def give_up(self, error: ServegateError | None) -> None:
        """See `ClientCall`."""
        self._drop_branches(
            Attempt.left if error is None else lambda one: one.failed(error, by_replica=False)
        )
        self._drop_own()

    def _drop_branches(self, end: Callable[[Attempt], None]) -> None:
        """Branches that still run have lost their client."""
        branches, self.branches = self.branches, {}
        self._floor = self.source = None
        until = self.now() + self.desk.longest  # the stream itself may be older
        for branch in branches.values():
            leg, branch.leg = branch.leg, None
            branch.drop()
            if leg is not None:
                self.let_go(leg, branch.attempt, is_whole=branch.is_whole, until=until)
            end(branch.attempt)

    def _drop_own(self) -> None:
        self._own.clear()
        self.hold(-self._held)
