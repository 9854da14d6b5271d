"""A unary call: what comes back for the one message that was sent.

A head waits for what follows it, because it may be that of a refusal, which another replica can
make good. From the first byte of an answer on the call has been executed, and the answer passes as
it is: fields in their order, bytes as they come. Only the decision is added to its trailers.
"""

from serve.core.calls import Account, Reply, Verb
from serve.core.errors import NotLoaded, ServegateError
from serve.listeners.grpc.request import UnaryRequest
from serve.proxy.attempts import NOWHERE, Attempt
from serve.triton.grpc_upstream import Leg
from serve.wire.grpc_heads import AnswerHead
from serve.wire.http2_stream import Piece
from serve.wire.status import not_ready


class UnaryCall(UnaryRequest):
    """One call of ModelInfer, or of a question about a model or the server."""

    __slots__ = ()

    # --- the answer -------------------------------------------------------------------------------

    def on_answer(self, leg: Leg, piece: Piece) -> None:
        """A piece of the answer."""
        head, restoring = leg.head, self._restoring
        if head is not None:
            self._answered_at = self.desk.clock()
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

    def on_trailers(self, leg: Leg, trailers: AnswerHead) -> None:
        """The status. One that refuses the call may send it to another replica."""
        attempt = self._attempt
        assert attempt is not None
        self._leg = self.source = None
        status = trailers.status
        if not self.answered:
            self._answered_at = self.desk.clock()
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
        self.end_with(block + self.desk.decision(attempt.decision))

    def on_whole_answer(self, leg: Leg, piece: Piece, trailers: AnswerHead) -> None:
        """All of it at once, which is the usual case."""
        attempt, head = self._attempt, leg.head
        assert attempt is not None and head is not None
        if not trailers.status and self._restoring is None and self.is_remote_closed:
            block = trailers.block + self.desk.decision(attempt.decision) + self.name
            if self.link.send_all(self, head.block, piece, block):
                self.is_ended = True
                self.answered = len(piece)
                self._leg = self.source = self._pieces = None
                self.desk.board.held -= self._held
                self._held = 0
                attempt.answered(0, good=True)
                return
        self.on_answer(leg, piece)
        self.on_trailers(leg, trailers)

    def _executed(self, leg: Leg) -> None:
        """The head of the answer goes to the client: there is nothing to repeat any more."""
        leg.head = None
        self.is_head_sent = True
        self._release()

    def _is_refused(self, attempt: Attempt, status: int, message: str) -> bool:
        """Whether the call goes on to another replica."""
        can_repeat = self._pieces is not None and self.is_remote_closed
        try:
            if not attempt.refused(Reply(status, b"", (), message), can_repeat=can_repeat):
                return False
            self._sent_at, self._answered_at = self.desk.clock(), 0.0
            self._send_all()
        except NotLoaded as error:
            self._wait_loaded(attempt, error)
        except ServegateError as error:
            self.fail(error)
        return True

    def account(self) -> Account:
        """See `Origin`. An answer that came as a whole has come just now."""
        attempt, upstream = self._attempt, 0.0
        if attempt is not None and (self.answered or self._answered_at):
            came = self._answered_at or self.desk.clock()
            upstream = came - (self._sent_at or attempt.begun)
        return self.account_of(self.received, self.answered, max(0.0, upstream))

    @property
    def has_begun(self) -> bool:
        """See `ClientCall`."""
        return self._attempt is not None

    # --- ends -------------------------------------------------------------------------------------

    def give_up(self, error: ServegateError | None) -> None:
        """See `ClientCall`."""
        attempt, leg = self._attempt, self._leg
        self._leg = self.source = None
        arriving, self._arriving, self._whole = self._arriving, None, None
        self._release()
        if attempt is None:
            if arriving is not None:
                code = "client_left" if error is None else error.code
                gateway = self.desk.gateway
                gateway.ended(arriving.call, None, NOWHERE, code, arriving.since, error=code)
            return
        if leg is not None:
            until = attempt.begun + self.desk.longest
            self.let_go(leg, attempt, is_whole=leg.is_local_closed, until=until)
        if error is None:
            attempt.left()
        else:
            attempt.failed(error)

    def reply_to(self, error: ServegateError) -> Reply:
        """To Triton a model that is not there is not ready, which is no error."""
        told = not_ready("grpc", error) if self.head.verb is Verb.READY else None
        return told or super().reply_to(error)
