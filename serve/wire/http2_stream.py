"""A stream of an HTTP/2 connection: its windows, what waits on it, and what its owner is told."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Protocol

from serve.wire.http2 import window_update

Piece = bytes | memoryview
STREAM_WINDOW = 1 << 20  # bytes that one stream may send before any of them has gone on
WORTH_GIVING = STREAM_WINDOW >> 1  # bytes of credit that are worth a frame


class Carrier(Protocol):
    """What a stream needs of its connection."""

    peer_window: int

    def send(self, frames: bytes) -> None:
        """Add whole frames that no window counts."""


class Stream(ABC):
    """One stream. What happens on it is told to `on_…`, which its owner overrides."""

    __slots__ = (
        "credit",
        "ends",
        "id",
        "is_local_closed",
        "is_remote_closed",
        "link",
        "owed",
        "queue",
        "queued",
        "send_window",
        "source",
        "trailers",
    )

    def __init__(self, link: Carrier, number: int) -> None:
        self.link = link
        self.id = number
        self.send_window = link.peer_window
        self.credit = STREAM_WINDOW
        self.owed = 0
        self.is_remote_closed = False
        self.is_local_closed = False
        self.source: Stream | None = None
        self.queue: deque[Piece] | None = None
        self.queued = 0
        self.ends = False  # END_STREAM follows the queue
        self.trailers: bytes | None = None  # these follow the queue

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} queued={self.queued}>"

    @abstractmethod
    def on_data(self, piece: Piece, end: int) -> None:
        """Bytes of DATA have come; `end` is not 0 when they are the last."""

    @abstractmethod
    def on_reset(self, code: int) -> None:
        """The stream is gone: reset by the peer, or by us for a fault of the peer's."""

    def on_drained(self) -> None:  # noqa: B027 - most streams need not know
        """What had to wait has gone out."""

    def consume(self, count: int) -> None:
        """So many bytes that came on this stream are done with: their credit is given back."""
        self.owed += count
        if self.owed >= WORTH_GIVING:
            self.give_credit()

    def give_credit(self) -> None:
        """Let the peer send what is owed; never more than a window altogether."""
        grant = min(self.owed, STREAM_WINDOW - self.credit)
        self.owed = 0
        if grant > 0 and not self.is_remote_closed:
            self.credit += grant
            self.link.send(window_update(self.id, grant))
