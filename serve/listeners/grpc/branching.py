"""The branches of a stream: where its messages go, and what becomes of them when one is lost."""

from serve.core.calls import Reply
from serve.core.errors import NotSent, OutcomeUnknown, ServegateError
from serve.core.snapshot import Target
from serve.listeners.grpc.branch import Branch, Share, branch_key
from serve.listeners.grpc.desk import ClientLink, Desk
from serve.listeners.grpc.merging import MergedCall
from serve.listeners.grpc.restoring import StreamRestoring
from serve.proxy.attempts import Attempt
from serve.wire import protobuf
from serve.wire.grpc_messages import PREFIX_SIZE
from serve.wire.grpc_requests import RequestHead
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece


class BranchedCall(MergedCall):
    """What a stream knows of its replicas. `StreamCall` cuts and routes its messages."""

    __slots__ = ("_into", "_is_skipping", "_last_replica", "_renamed", "_stalled")

    def __init__(self, link: ClientLink, number: int, desk: Desk, head: RequestHead) -> None:
        super().__init__(link, number, desk, head)
        self._stalled: object | None = None  # waits for a replica, and all messages behind it
        self._into: Branch | None = None  # where the present message goes
        self._is_skipping = False  # the rest of it is dropped
        self._renamed: dict[str, Target] = {}  # versions that Triton knows by other names
        self._last_replica = ""

    @property
    def has_begun(self) -> bool:
        """See `ClientCall`."""
        return bool(self._last_replica)

    def _work(self) -> None:
        """Route and send what has come."""
        raise NotImplementedError

    def sweep(self, now: float) -> None:
        """A replica that leaves gets no more of a stream that goes on; it says what it owes."""
        super().sweep(now)
        has = self.desk.gateway.has
        for branch in tuple(self.branches.values()):
            is_between = branch.may_leave and branch is not self._into
            if is_between and not has(branch.attempt.replica):
                self._leave(branch)

    def _leave(self, branch: Branch) -> None:
        del self.branches[branch.key]
        branch.is_leaving = True
        if branch.key in self.branches:  # it came back, and leaves once more: one after the other
            branch.is_leaving = False
            self.branches[branch.key] = branch
            return
        self.branches[branch.key] = branch
        branch.half_close()

    def _branch(self, attempt: Attempt, share: Share) -> Branch:
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
            error = OutcomeUnknown(
                error.what, why="the stream had already sent more than one message"
            )
        branch.attempt.failed(error)
        branch.drop()
        self.fail(error)

    def on_branch_refused(self, branch: Branch, reply: Reply) -> bool:
        """See `Trunk`. A replica that has not loaded the model is replaced by another one.

        There is no waiting for it here: the messages behind this one would wait as well.
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
            self.desk.pool.absorb(leg)
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
