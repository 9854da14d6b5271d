"""Calls on a Triton that no client waits for: answers to be dropped, and one question of our own.

Triton before 2.53 may crash when calls in flight are cancelled (server issues 7368 and 8034). So
its version is asked, and until it is known to be safe, the calls of clients that have gone run to
their end and their answers are dropped.
"""

import re
from collections.abc import Callable

from serve.core import faults
from serve.core.calls import Verb
from serve.core.errors import BadRequest, NotSent, OutcomeUnknown
from serve.triton.grpc_upstream import Upstream, UpstreamLeg
from serve.wire import protobuf
from serve.wire.grpc_heads import CONTENT_TYPE, TE, AnswerHead
from serve.wire.grpc_messages import EMPTY_MESSAGE, PREFIX_SIZE
from serve.wire.hpack_blocks import literal
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece
from serve.wire.kserve_grpc import method_of

SAFE = (2, 53)  # the first Triton that survives cancelled calls, of the container 24.12
_LARGEST = 1 << 16  # bytes of an answer about the server
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Absorber:
    """Takes the rest of an answer that nobody wants; `on_end` is told when it is over."""

    def __init__(self, on_end: Callable[[UpstreamLeg], None]) -> None:
        self._on_end = on_end

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        """Dropped; the credit goes back, so that what follows can come."""
        leg.consume(len(piece))

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        """It is over."""
        self._on_end(leg)

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        """Dropped, too."""
        self._on_end(leg)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        """Nobody minds."""
        self._on_end(leg)

    def on_fault(self, error: Exception) -> None:
        """See `Receiver`."""
        faults.report(self, error)


class VersionQuestion:
    """Asks a Triton for its version. `is_safe` is False until it is known to be."""

    def __init__(self, upstream: Upstream) -> None:
        self.is_safe = False
        self.is_lost = False
        self._answer = b""
        head = literal(b":path", method_of(Verb.SERVER_METADATA).encode()) + TE + CONTENT_TYPE
        upstream.open(self, head, EMPTY_MESSAGE, END_STREAM, None)

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        """A piece of `ServerMetadataResponse`."""
        leg.consume(len(piece))
        if len(self._answer) < _LARGEST:
            self._answer += piece

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        """The answer is complete."""
        self.is_safe = _is_safe(self._answer[PREFIX_SIZE:])

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        """All at once."""
        self.on_answer(leg, piece)
        self.on_trailers(leg, trailers)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        """It has to be asked again."""
        self.is_lost = True

    def on_fault(self, error: Exception) -> None:
        """See `Receiver`."""
        faults.report(self, error)
        self.is_lost = True


def _is_safe(message: bytes) -> bool:
    """Whether a `ServerMetadataResponse` names a version (field 2) that survives it."""
    try:
        found = dict(protobuf.fields(message)).get(2)
    except BadRequest:
        return False
    match = _VERSION.match(found.decode("latin-1")) if isinstance(found, bytes) else None
    return match is not None and (int(match[1]), int(match[2])) >= SAFE
