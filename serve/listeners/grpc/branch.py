"""A branch of a client's stream: one stream to one model of one replica, and what it answers.

A Triton (seen with 2.51) aborts when one stream carries calls of a decoupled model together with
others, so every model has a stream of its own, whatever its configuration says.

The first message to a replica opens the branch; the attempt that chose it stays open as long as the
branch does. That message is kept until there is an answer or another message: a replica that cannot
be reached, or refuses the stream, is replaced by another one.

For the access log a branch is one call, from its first message to its end; messages that are
refused are calls of their own.
"""

from collections import deque
from typing import TYPE_CHECKING

from serve.core.calls import Account, Reply
from serve.core.errors import NotSent, OutcomeUnknown
from serve.listeners.grpc.model_names import StreamRestoring
from serve.proxy.attempts import Attempt
from serve.triton.grpc_upstream import Upstream, UpstreamLeg
from serve.wire.grpc_heads import AnswerHead
from serve.wire.grpc_messages import MessageCutter
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece
from serve.wire.kserve_grpc import stream_sentence
from serve.wire.status import NOT_FOUND

if TYPE_CHECKING:
    from serve.listeners.grpc.stream_call import StreamCall

KEPT = 1 << 18  # bytes of the first message


def branch_key(attempt: Attempt) -> tuple[str, str]:
    """Which branch a message belongs to: the replica, and the model as Triton knows it."""
    choice = attempt.choice
    return attempt.replica.name, "" if choice is None else choice.target.physical_name


class BranchAccount:
    """What the access log says of one branch, or of a message that was refused. See `Origin`."""

    __slots__ = ("answered", "answered_at", "received", "sent_at", "stream")

    def __init__(self, stream: "StreamCall", received: int) -> None:
        self.stream = stream
        self.received = received  # bytes of messages
        self.answered = 0
        self.sent_at = 0.0  # when the first message had gone
        self.answered_at = 0.0  # when the first byte came back

    def account(self) -> Account:
        """What is known at this moment."""
        upstream = max(0.0, self.answered_at - self.sent_at) if self.answered_at else 0.0
        return self.stream.account_of(self.received, self.answered, upstream)

    def header(self, name: bytes) -> bytes:
        """See `CallOrigin`."""
        return self.stream.header(name)


class Branch:
    """One upstream stream. `said` are pieces of answers, and whether a message ends there."""

    def __init__(
        self,
        stream: "StreamCall",
        attempt: Attempt,
        restoring: StreamRestoring,
        share: BranchAccount,
    ) -> None:
        self.attempt = attempt
        self.share = share
        self.leg: UpstreamLeg | None = None
        self.said: deque[tuple[Piece, bool]] = deque()
        self.trailers: AnswerHead | None = None
        self.kept: list[Piece] | None = []  # the first message, as long as it may be repeated
        self.is_whole = False  # what was sent ends with a message
        self.is_leaving = False  # its replica does; only what it still owes is waited for
        self._kept_size = 0
        self._stream = stream
        self._messages = MessageCutter()
        self._restoring = restoring

    def __repr__(self) -> str:
        return f"<Branch {self.key} said={len(self.said)}>"

    @property
    def key(self) -> tuple[str, str]:
        """Where it goes at present; no message goes to one that leaves."""
        replica, model = branch_key(self.attempt)
        return (f"\0{replica}", model) if self.is_leaving else (replica, model)

    @property
    def is_between(self) -> bool:
        """Whether the answers stand at the border of a message."""
        return self._messages.is_between

    # --- there ------------------------------------------------------------------------------------

    def send(self, piece: Piece, *, is_last: bool) -> None:
        """A part of a message."""
        self.is_whole = is_last
        if self.kept is not None:
            self.kept.append(piece)
            self._kept_size += len(piece)
            self._stream.hold(len(piece))
            if self._kept_size > KEPT and self.leg is not None:
                self.release()
        if self.leg is not None:
            self.leg.link.send_data(self.leg, piece)
            self._note_sent()

    def _note_sent(self) -> None:
        if self.is_whole and not self.share.sent_at:
            self.share.sent_at = self._stream.now()

    @property
    def may_leave(self) -> bool:
        """Whether it stands between two messages, and nothing of it is to be repeated elsewhere."""
        return self.leg is not None and self.is_whole and not self.is_leaving

    def half_close(self) -> None:
        """There will be no more messages."""
        leg = self.leg
        if leg is not None and not leg.is_local_closed and not leg.ends:
            leg.link.send_data(leg, b"", END_STREAM)

    def release(self) -> None:
        """What was kept will not be repeated."""
        self.kept = None
        self._stream.hold(-self._kept_size)
        self._kept_size = 0

    def drop(self) -> None:
        """Nothing of this branch is wanted any more."""
        self.release()
        self._stream.hold(-sum(len(piece) for piece, _ in self.said))
        self.said.clear()

    def on_connected(self, upstream: Upstream) -> None:
        """There is a connection: send what has come so far."""
        if self.kept is None:
            return  # the stream has ended meanwhile
        first, *others = self.kept
        self.leg = self._stream.open_leg(self, upstream, first)
        for piece in others:
            upstream.send_data(self.leg, piece)
        self._note_sent()
        if self._kept_size > KEPT:
            self.release()
        self._stream.on_branch_connected(self)

    def on_not_connected(self, error: NotSent) -> None:
        """There will be no connection."""
        if self.kept is not None:
            self._stream.on_branch_lost(self, error)

    # --- back -------------------------------------------------------------------------------------

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        """A piece of the answers."""
        if self.kept is not None and self._is_refused(piece):
            leg.consume(len(piece))
            return
        self.release()
        share = self.share
        share.answered_at = share.answered_at or self._stream.now()
        share.answered += len(piece)
        head, leg.head = leg.head, None
        for prefix, part, is_last in self._messages.cut(piece):
            for out, ends in self._restoring.pass_on(prefix, part, is_last):
                self.said.append((out, ends))
                self._stream.hold(len(out))
        self._stream.on_branch_answer(self, head)

    def _is_refused(self, piece: Piece) -> bool:
        """Whether the first answer is an error that is dealt with elsewhere."""
        sentence = stream_sentence(piece)
        refusal = Reply(NOT_FOUND, b"", (), sentence)
        return bool(sentence) and self._stream.on_branch_refused(self, refusal)

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        """The branch's end."""
        if self.kept is not None and trailers.status:
            refusal = Reply(trailers.status, b"", (), trailers.message)
            self.leg = None
            if self._stream.on_branch_refused(self, refusal):
                return
        self.release()
        head, leg.head = leg.head, None
        self.leg, self.trailers = None, trailers
        self._stream.on_branch_answer(self, head)

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        """Both."""
        self.on_answer(leg, piece)
        if self.leg is leg:
            self.on_trailers(leg, trailers)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        """The leg has broken."""
        self.leg = None
        self._stream.on_branch_lost(self, error)

    def on_fault(self, error: Exception) -> None:
        """See `Receiver` and `Waiter`."""
        self._stream.on_fault(error)
