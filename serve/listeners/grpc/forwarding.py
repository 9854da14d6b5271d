"""The way of a unary call to a replica: waiting for a pool, connecting, and going elsewhere.

What is sent is kept, up to a limit, until an answer says that the call has been executed: after a
refusal it can go to another replica. While the model's pool has been scaled to zero (see
`proxy/waking.py`), what has come of the message is kept in the same way. Its credit does not go
back meanwhile, so a client that has more of it waits as well.
"""

from serve.core.calls import Call
from serve.core.errors import NotLoaded, NotSent, OutcomeUnknown, ServegateError, Unavailable
from serve.listeners.grpc.call import ClientCall
from serve.listeners.grpc.restoring import Restoring
from serve.proxy.attempts import Attempt
from serve.triton.grpc_upstream import Leg, Upstream
from serve.wire.grpc_heads import AnswerHead
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece

KEPT = 1 << 18  # bytes of a request that are kept for a repeat


class Forwarding(ClientCall):
    """What a unary call knows of its replica. `UnaryRequest` sets all of it at first."""

    __slots__ = (
        "_answered_at",
        "_attempt",
        "_held",
        "_leg",
        "_pieces",
        "_restoring",
        "_sent_at",
    )

    _attempt: Attempt | None
    _leg: Leg | None
    _pieces: list[Piece] | None  # what was sent, as long as it may be repeated
    _held: int  # bytes that the board counts for this call
    _restoring: Restoring | None
    _sent_at: float  # when a slow request ended
    _answered_at: float  # when an answer began

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

    # --- its model's pool sleeps, or has not loaded it --------------------------------------------

    def _sleep(self, call: Call, piece: Piece) -> None:
        """Wait for a replica. `piece` begins with the prefix of the message."""
        self.check_room(to_sleep=True)
        self._attempt = self.desk.gateway.wait(call, self)
        self._pieces = [piece]
        self._count(len(piece))

    def _wait_loaded(self, attempt: Attempt, error: NotLoaded) -> None:
        """Wait until a replica has loaded the model; what was kept is sent again then."""
        try:
            self._attempt = self.desk.gateway.wait_loaded(attempt, self, error)
        except NotLoaded as final:
            self.fail(final)

    def on_awake(self, attempt: Attempt) -> None:
        """See `Waiter`."""
        raise NotImplementedError

    def on_asleep(self, error: ServegateError) -> None:
        """See `Waiter`."""
        self.fail(error)

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
            self.fail(Unavailable(error.what, why="the request is too large for a retry"))
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
