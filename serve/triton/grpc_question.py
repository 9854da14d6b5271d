"""One question to one replica over its gRPC connections, for whoever can wait for the answer.

Predict calls do not go this way: they make no task and no future.
"""

import asyncio

from serve.core import faults
from serve.core.calls import Reply
from serve.core.errors import BodyTooLarge, DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_upstream import Upstream, UpstreamLeg
from serve.wire.grpc_heads import CONTENT_TYPE, TE, AnswerHead
from serve.wire.grpc_messages import PREFIX_SIZE
from serve.wire.grpc_messages import message as with_prefix
from serve.wire.hpack_blocks import literal
from serve.wire.http2 import CANCEL, END_STREAM
from serve.wire.http2_stream import Piece


async def ask(
    pool: GrpcPool, replica: Replica, method: str, message: bytes, *, seconds: float, limit: int
) -> Reply:
    """The answer to a unary call of `method`, a path: its status, message and no metadata.

    `NotSent` and `OutcomeUnknown` as every call to a Triton, `DeadlineExceeded` after so many
    seconds, `BodyTooLarge` for an answer of more than `limit` bytes.
    """
    block = literal(b":path", method.encode()) + TE + CONTENT_TYPE
    return await send(pool, replica, block, message, seconds=seconds, limit=limit)


async def send(
    pool: GrpcPool, replica: Replica, block: bytes, message: bytes, *, seconds: float, limit: int
) -> Reply:
    """See `ask`; `block` are all header fields, from `:path` on."""
    question = _Question(block, message, limit)
    upstream = pool.find(replica)
    if upstream is None:
        pool.wait(replica, question)
    else:
        question.on_connected(upstream)
        pool.board.flush()
    try:
        async with asyncio.timeout(seconds):
            return await question.reply
    except TimeoutError as error:
        raise DeadlineExceeded from error
    finally:
        question.leave(pool)


class _Question:
    """Waits for a connection, then for an answer. See `Waiter` and `Receiver`."""

    def __init__(self, head: bytes, message: bytes, limit: int) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._head = head
        self._message = message
        self._limit = limit
        self._said = bytearray()
        self._leg: UpstreamLeg | None = None

    def leave(self, pool: GrpcPool) -> None:
        """Nobody waits any more: what is under way runs to its end, and is dropped."""
        leg, self._leg = self._leg, None
        if leg is not None:
            pool.absorb(leg)

    def on_connected(self, upstream: Upstream) -> None:
        """Ask, unless nobody waits any more."""
        if not self.reply.done():
            whole = with_prefix(self._message)
            self._leg = upstream.open(self, self._head, whole, END_STREAM, None)

    def on_not_connected(self, error: NotSent) -> None:
        """There will be no connection."""
        self._fail(error)

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        """A piece of the answer."""
        leg.consume(len(piece))
        self._said += piece
        if len(self._said) > self._limit + PREFIX_SIZE and self._leg is not None:
            self._leg = None
            leg.link.reset(leg, CANCEL)
            self._fail(BodyTooLarge(self._limit))

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        """It is complete."""
        self._leg = None
        if not self.reply.done():
            body = bytes(self._said[PREFIX_SIZE:])
            self.reply.set_result(Reply(trailers.status, body, (), trailers.message))

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        """All at once."""
        self.on_answer(leg, piece)
        self.on_trailers(leg, trailers)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        """The answer will not come."""
        self._leg = None
        self._fail(error)

    def on_fault(self, error: Exception) -> None:
        """See `Receiver`."""
        faults.report(self, error)
        self._leg = None
        self._fail(OutcomeUnknown(faults.WHAT, why=repr(error)))

    def _fail(self, error: NotSent | OutcomeUnknown | BodyTooLarge) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
