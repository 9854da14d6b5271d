"""An HTTP/2 link on a real transport: reads go in, what is collected is written once per turn.

Both ends of the gateway are of this kind: clients' connections and those to the Tritons. Works on
uvloop and on asyncio alike.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import cast

from serve.core import faults
from serve.core.limits import Limits
from serve.wire import http2
from serve.wire.http2 import ConnectionFault
from serve.wire.http2_flow import FlowBoard
from serve.wire.http2_link import Link

_JOIN = 1 << 16  # bytes of output up to which one write is cheaper than many
_HIGH_WATER = 1 << 18  # bytes that the transport buffers before DATA has to wait


class GrpcConnection(Link, asyncio.Protocol):
    """One connection. It is closed at most once; `on_closed` then ends what was on it."""

    __slots__ = (
        "flushed_id",
        "is_closed",
        "transport",
    )

    def __init__(self, board: FlowBoard, limits: Limits) -> None:
        super().__init__(
            board, frame=limits.frame, head=limits.head, continuations=limits.continuations
        )
        self.transport: asyncio.Transport | None = None
        self.is_closed = False
        self.flushed_id = 0  # no byte of a stream above this one has been written

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"streams={len(self.streams)}"
        return f"<{type(self).__name__} {state}>"

    @property
    def last_taken(self) -> int:
        """The highest stream that was not ignored, as GOAWAY says it."""
        return self.last_id

    @abstractmethod
    def on_closed(self, why: str) -> None:
        """The connection carries nothing any more; its streams are still in `streams`."""

    def close(self, code: int = http2.NO_ERROR, why: str = "") -> None:
        """Say goodbye and close; bytes that are already written still go out."""
        if self.is_closed:
            return
        self.send(http2.goaway(max(self.last_taken, 0), code, why))  # -1: it opened no stream
        self.flush()
        self._end(why or "it was closed")
        if self.transport is not None:
            self.transport.close()

    def abort(self, why: str) -> None:
        """Close at once."""
        try:
            self._end(why)
        finally:
            if self.transport is not None:
                self.transport.abort()

    def on_fault(self, error: Exception) -> None:
        """See `Outflow`."""
        faults.report(self, error)
        faults.contained(self, self.abort, f"{faults.WHAT}: {error!r}")

    def guarded(self, act: Callable[..., object], *arguments: object) -> None:
        """Call this for the connection; a fault in it ends this connection alone."""
        try:
            act(*arguments)
        except Exception as error:
            self.on_fault(error)

    def flush(self) -> None:
        """Write what has been collected."""
        out, size = self.out, self.out_size
        if not out or self.transport is None:
            return
        self.out, self.out_size = [], 0
        self.flushed_id = self.last_id
        if self.is_closed:
            return
        if len(out) == 1:
            self.transport.write(out[0])
        elif size <= _JOIN:
            self.transport.write(b"".join(out))
        else:
            self.transport.writelines(out)

    def _end(self, why: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.on_closed(why)
        for stream in tuple(self.streams.values()):
            self.forget(stream)
        self.out, self.out_size = [], 0

    # --- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Bytes; what they cause is written before this returns."""
        if self.is_closed:
            return
        try:
            self.receive(data)
        except ConnectionFault as fault:
            self.guarded(self.close, fault.code, fault.why)
        except Exception as error:
            self.on_fault(error)
        self.board.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """The other side has closed, or the network has."""
        self.guarded(self._end, str(error) if error else "it was closed")
        self.board.flush()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self.is_choked = True

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        self.is_choked = False
        self.guarded(self.pump)
        self.board.flush()
