"""A client's call: what unary calls, streams and the gateway's own answers have in common.

A call is the client's stream. It is ended exactly once: by an answer, by an error of ours, or by
the client that goes away. Nothing here waits: `sweep` is how time passes.
"""

from serve.core import faults
from serve.core.calls import Account, Reply
from serve.core.errors import (
    DeadlineExceeded,
    NoRoom,
    OutcomeUnknown,
    ServegateError,
    TooManyIncomplete,
    TooSlow,
)
from serve.listeners.grpc.context import ClientLink, GrpcContext
from serve.proxy.attempts import Attempt
from serve.triton.grpc_upstream import UpstreamLeg
from serve.wire.grpc_heads import OK_HEAD, OK_TRAILERS, error_block
from serve.wire.grpc_messages import message
from serve.wire.grpc_requests import RequestHead, metadata, readable, told_id
from serve.wire.hpack_blocks import literal
from serve.wire.http2 import CANCEL, END_STREAM, NO_ERROR
from serve.wire.http2_stream import Piece, Stream
from serve.wire.status import grpc_error

_ENDED = -2  # what a sweep has seen of a call that has ended, less what waits to be taken


class ClientCall(Stream):
    """One call of a client; what is known of it beyond its stream."""

    __slots__ = (
        "_active_at",
        "_seen",
        "answered",
        "context",
        "deadline",
        "head",
        "is_ended",
        "is_head_sent",
        "received",
    )

    link: ClientLink

    def __init__(
        self, link: ClientLink, number: int, context: GrpcContext, head: RequestHead
    ) -> None:
        Stream.__init__(self, link, number)
        self.context = context
        self.head = head
        self.is_ended = False
        self.is_head_sent = False
        self.received = self.answered = 0  # bytes of DATA
        longest = context.longest
        self.deadline = context.clock() + (head.timeout if head.timeout < longest else longest)
        self._seen = -1  # bytes at `_active_at`; the first sweep sets both

    @property
    def name(self) -> bytes:
        """The trailer that names the call, as the client did or as it was made up."""
        return self.head.told_id or self.link.names % self.id

    @property
    def request_id(self) -> str:
        """The name as people read it."""
        return told_id(self.name)

    def account(self) -> Account:
        """See `Origin`."""
        return self.account_of(self.received, self.answered, 0.0)

    def header(self, name: bytes) -> bytes:
        """See `CallOrigin`."""
        pairs = metadata(self.head, self.context.heads.fields)
        return b", ".join(value for key, value in pairs if key == name)

    def account_of(self, received: int, answered: int, upstream: float) -> Account:
        """The account of this call, or of a part of it."""
        return Account(
            request_id=self.request_id,
            traceparent=readable(self.head.traceparent),
            peer=self.link.peer,
            received=received,
            answered=answered,
            upstream=upstream,
        )

    # --- what a kind of call overrides ------------------------------------------------------------

    @property
    def owes(self) -> bool:
        """Whether the client has begun something that it has to finish."""
        return not self.is_remote_closed

    @property
    def has_begun(self) -> bool:
        """Whether the gateway has taken it for a call: it was routed, and admitted."""
        return False

    def give_up(self, error: ServegateError | None) -> None:
        """Let go of everything behind the call; without an error the client has gone."""

    # --- ends -------------------------------------------------------------------------------------

    def on_reset(self, code: int) -> None:
        """The client has gone, or its stream had to be reset."""
        if not self.is_ended:
            self.is_ended = True
            self.give_up(None)

    def fail(self, error: ServegateError) -> None:
        """End the call with an error of ours."""
        if self.is_ended:
            return
        self.is_ended = True
        self.give_up(error)
        self.answer_reply(self.reply_to(error))

    def on_fault(self, error: Exception) -> None:
        """Our own code has failed for this call, in another connection's callback: it ends."""
        faults.report(self, error)
        try:
            self.fail(OutcomeUnknown(faults.WHAT, why=repr(error)))
        except Exception as another:
            self.link.on_fault(another)

    def reply_to(self, error: ServegateError) -> Reply:
        """The error as an answer."""
        return grpc_error(error)

    def answer_reply(self, reply: Reply) -> None:
        """A complete answer of ours; what waits of another one is dropped."""
        self.link.drop_queue(self)
        if reply.status == 0:
            self.link.send_head(self, OK_HEAD)
            self.answered = len(reply.body)
            self.link.send_data(self, message(reply.body))
            more = [literal(name, value) for name, value in reply.headers]
            self.end_with(b"".join((OK_TRAILERS, *more)))
        else:
            self.end_with(error_block(reply, with_head=not self.is_head_sent))

    def end_with(self, trailers: bytes) -> None:
        """The last header block; a client that is still sending is told to stop."""
        self.is_ended = True
        link = self.link
        link.send_head(self, trailers + self.name, end=END_STREAM)
        if not self.is_remote_closed and not self.queue:
            link.reset(self, NO_ERROR)

    def let_go(self, leg: UpstreamLeg, attempt: Attempt, *, is_whole: bool, until: float) -> None:
        """No caller waits for this leg any more; one that ends inside a message is always reset.

        Where Triton goes on with it, it keeps the slot of the attempt, which is ended after this.
        """
        leg.source = None
        if leg.is_local_closed and leg.is_remote_closed:
            return
        if not is_whole or self.context.forwards_cancels(leg.link.replica):
            leg.link.reset(leg, CANCEL)
            if is_whole:  # nothing tells when Triton is done, and 2.51 executes it nevertheless
                wait = self.context.gateway.admission.wait(attempt.call.model)
                attempt.detach(until=self.context.clock() + min(wait, self.context.longest))
            return
        if not leg.is_local_closed and not leg.ends:
            leg.link.send_data(leg, b"", END_STREAM)
        self.context.pool.absorb(leg, attempt.detach().free, until=until)

    # --- time -------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """End the call when its time is over, or when the client owes bytes and sends none."""
        if self.is_ended:
            self._sweep_ended(now)
        elif self.deadline <= now:
            self.fail(DeadlineExceeded())
        elif self.owes:
            self._sweep_body(now)

    def _sweep_ended(self, now: float) -> None:
        """An answer that the client does not take, or a request that it does not end."""
        left = _ENDED - self.queued
        if self._seen != left:
            self._seen, self._active_at = left, now
        elif now - self._active_at >= self.context.limits.body_idle:
            self.link.reset(self, CANCEL)

    def _sweep_body(self, now: float) -> None:
        limits, is_new = self.context.limits, self._seen < 0
        if is_new or self.credit <= 0:  # without credit it is us who let the client wait
            self._seen, self._active_at = self.received, now
        if self.credit <= 0:
            return
        try:
            key = self.head.authorization
            self.context.incomplete.count(self.link.peer, key, is_new=is_new)
        except TooManyIncomplete as error:
            self.fail(error)
            return
        taken, came = now - self._active_at, self.received - self._seen
        if taken < limits.body_window(holds_slot=self.has_begun):
            return
        if not came or came < limits.body_rate * taken:
            self.fail(TooSlow(f"only {came} bytes of the message arrived in {taken:.3g} s", taken))
        else:
            self._seen, self._active_at = self.received, now

    def check_room(self, *, to_sleep: bool = False) -> None:
        """`NoRoom` while this worker holds as many bytes as it may, or for a call that waits."""
        limits = self.context.limits
        limit = limits.asleep if to_sleep else limits.in_flight
        if self.context.board.held >= limit:
            raise NoRoom(limit)


class OwnCall(ClientCall):
    """A call that the gateway answers itself, when the request has ended."""

    __slots__ = ("_answer",)

    def __init__(
        self, link: ClientLink, number: int, context: GrpcContext, head: RequestHead, answer: Reply
    ) -> None:
        super().__init__(link, number, context, head)
        self._answer = answer

    def on_data(self, piece: Piece, end: int) -> None:
        """The request says nothing."""
        self.received += len(piece)
        if end:
            self.is_ended = True
            self.answer_reply(self._answer)
