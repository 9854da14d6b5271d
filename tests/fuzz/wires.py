"""A loop whose connections are made of memory, and transports that behave as asyncio's do.

Nothing here opens a socket, but for a splice that asks for one. A `Wire` is the transport of one
protocol object; whoever plays the other side reads `take` and calls `say`. A narrow wire has next
to no buffer: whoever writes to it is paused at once, and goes on when the other side has read.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

_NARROW = 48  # bytes that a narrow wire takes before it asks for a pause
_WIDE = 1 << 40
_TURNS = 5_000  # of the loop; more means that something goes round for ever


class Loop(asyncio.SelectorEventLoop):
    """An event loop that turns only when it is told to, and remembers what went wrong in it."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[str] = []
        self.listeners: dict[int, Callable[[Wire], None]] = {}
        self.is_narrow = False
        self.set_exception_handler(self._on_failure)
        asyncio.set_event_loop(self)

    def _on_failure(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context['message']}: {error!r}")
        if error is not None and error.__traceback__ is not None:
            logging.getLogger("fuzz").debug("in the loop", exc_info=error)

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple["Wire", asyncio.Protocol]:
        """Connect to a listener of this loop; nobody else can be reached."""
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(port)
        protocol = factory()
        wire = Wire(self, protocol)
        listener(wire)
        return wire, protocol

    def turn(self, *calls: Callable[[], None]) -> None:
        for call in calls:
            self.call_soon(call)
        self.call_soon(self.stop)
        self.run_forever()
        assert not self.failures, self.failures[0]

    def finish(self, play: Callable[[], bool]) -> None:
        """Turn until nothing is left to do: `play` lets the other sides act, and says whether."""
        quiet = 0
        for _ in range(_TURNS):
            self.turn()
            quiet = 0 if play() else quiet + 1
            if quiet == 6:
                return
        raise AssertionError("it does not come to rest")


class Wire(asyncio.Transport):
    """The transport of one protocol object."""

    def __init__(self, loop: Loop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self.written = bytearray()  # and not taken yet
        self.is_paused = False  # the protocol reads nothing
        self.is_lost = False
        self.has_ended = False  # our protocol sends no more
        self.was_aborted = False
        self.most_held = 0
        self._is_closing = False
        self._is_choked = False  # the protocol has been asked to pause
        self._high = _NARROW if loop.is_narrow else _WIDE
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        protocol.connection_made(self)

    # --- what the protocol calls ------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:  # type: ignore[override]
        assert not self.has_ended, "write after write_eof raises in asyncio"
        if self._is_closing:
            return
        self.written += data
        self.most_held = max(self.most_held, len(self.written))
        self._look_for_room()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def write_eof(self) -> None:
        assert not self._is_closing
        self.has_ended = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self.written:
                self._lose()

    def abort(self) -> None:
        self.was_aborted = True
        was_closing, self._is_closing = self._is_closing, True
        if not was_closing or self.written:
            if self._high is not _WIDE:
                self.written.clear()
            self._lose()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        wanted = 1 << 16 if high is None else high
        self._high = min(wanted, _NARROW) if self._loop.is_narrow else wanted or 0
        if not self._loop.is_narrow and wanted:
            self._high = _WIDE
        self._look_for_room()

    def get_write_buffer_size(self) -> int:
        return len(self.written) if self._loop.is_narrow else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            if self._sockets is None:
                self._sockets = socket.socketpair()
                for one in self._sockets:
                    one.setblocking(False)
            return self._sockets[0]
        return ("192.0.2.1", 4711) if name in ("peername", "sockname") else default

    # --- what the other side does -----------------------------------------------------------------

    def take(self) -> bytes:
        data = bytes(self.written)
        self.written.clear()
        if data and self._is_closing:
            self._lose()
        if self._is_choked and not self._is_closing:
            self._is_choked = False
            self._loop.turn(self._protocol.resume_writing)
        return data

    @property
    def may_say(self) -> bool:
        return not self.is_paused and not self._is_closing

    def say(self, data: bytes) -> None:
        assert self.may_say
        self._loop.turn(lambda: self._protocol.data_received(data))

    def end(self) -> None:
        """The other side closes: sockets tell that when all has been read, or at a write."""
        if not self._is_closing:
            self._loop.turn(self._end)

    def _end(self) -> None:
        if not self._is_closing and not self._protocol.eof_received():
            self._is_closing = True
            self._lose()

    def _look_for_room(self) -> None:
        if not self._is_choked and len(self.written) > self._high and not self._is_closing:
            self._is_choked = True
            self._protocol.pause_writing()

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._loop.call_soon(self._tell_lost)

    def _tell_lost(self) -> None:
        self._protocol.connection_lost(None)
        for one in self._sockets or ():
            one.close()


class Complaints(logging.Handler):
    """Errors that the code under test logs are failures."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop
        for name in ("servegate", "uvicorn.error"):
            logger = logging.getLogger(name)
            logger.handlers[:] = [self]
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._loop.failures.append(f"{record.getMessage()} {record.exc_info or ''}")
