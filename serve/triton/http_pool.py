"""The kept-open HTTP/1.1 connections to the Tritons, one call at a time on each.

A call takes the connection that was given back last (the warmest one), or asks for a new one, for
which alone a task is made. No call has a timer of its own: whoever owns the pool calls `sweep` now
and then, which closes connections that nobody has used for a while.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from serve.core import faults
from serve.core.calls import Headers, Reply
from serve.core.errors import BodyTooLarge, DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.processes.compute import joined
from serve.triton.http_connection import HttpConnection
from serve.wire.http_head import ReplyHead

IDLE = 60.0  # seconds after which an idle connection is closed
Address = tuple[str, int]  # host and port


class Pool:
    """The connections to all replicas. `clock` gives monotonic seconds."""

    def __init__(self, *, connect_timeout: float, clock: Callable[[], float]) -> None:
        self._connect_timeout = connect_timeout
        self._clock = clock
        self._now = clock()  # as of the last sweep
        self._idle: dict[Address, list[HttpConnection]] = {}
        self._busy: set[HttpConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._absorbed: dict[HttpConnection, tuple[float, Callable[[], None]]] = {}
        self._is_closed = False
        self._known: frozenset[Address] | None = None  # None: all

    def __repr__(self) -> str:
        return f"<Pool busy={self.busy} idle={self.idle} opening={len(self._opening)}>"

    @property
    def busy(self) -> int:
        """Connections with a call on them, and those being opened for one."""
        return len(self._busy) + len(self._opening)

    @property
    def idle(self) -> int:
        """Connections that wait for a call."""
        return sum(len(connections) for connections in self._idle.values())

    def take(self, replica: Replica) -> HttpConnection | None:
        """The connection that was used last and is still open, if there is one."""
        idle = self._idle.get((replica.host, replica.http_port))
        while idle:
            connection = idle.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                self._busy.add(connection)
                return connection
        return None

    def open(
        self,
        replica: Replica,
        *,
        opened: Callable[[HttpConnection], None],
        failed: Callable[[NotSent], None],
    ) -> None:
        """Open a connection and hand it over as taken; one of the two is called, later."""
        task = asyncio.get_running_loop().create_task(self._open(replica, opened, failed))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def give_back(self, connection: HttpConnection) -> None:
        """The call is over: keep the connection if another may follow, close it if not."""
        self._busy.discard(connection)
        if self._is_closed or not connection.is_reusable:
            connection.abort()
            return
        if connection.is_reading_paused:  # an idle connection has to notice that it is closed
            connection.resume_answer()
        connection.idle_since = self._now
        idle = self._idle.get(connection.address)
        if idle is None:
            self._idle[connection.address] = [connection]
        else:
            idle.append(connection)

    def discard(self, connection: HttpConnection) -> None:
        """Close a connection whose call was given up."""
        self._busy.discard(connection)
        connection.abort()

    def absorb(
        self, connection: HttpConnection, ended: Callable[[], None], *, until: float
    ) -> None:
        """Read and drop the answer to a request that no caller waits for; then `ended` is called.

        To close the connection would tell nobody when Triton is done with the call. At `until` it
        is closed nevertheless.
        """
        self._absorbed[connection] = until, ended
        connection.hand_over(_Dropped(lambda: self._absorbed_ended(connection)))

    def _absorbed_ended(self, connection: HttpConnection) -> None:
        _, ended = self._absorbed.pop(connection)
        self.give_back(connection)
        ended()

    def calls(self) -> Mapping[Address, Sequence[object]]:
        """By address what stands for each call on a connection, for as long as it is the same."""
        found: dict[Address, list[object]] = {}
        for one in self._busy:
            found.setdefault(one.address, []).append((id(one), one.idle_since))
        return found

    def cut(self, replica: Replica, why: str) -> None:
        """End the calls there, and close their connections."""
        address = (replica.host, replica.http_port)
        for connection in [one for one in self._busy if one.address == address]:
            faults.contained(connection, connection.cut, why)

    def keep(self, replicas: Iterable[Replica]) -> None:
        """Only these are called from now on: idle connections to others hold up their end."""
        self._known = frozenset((one.host, one.http_port) for one in replicas)

    def sweep(self) -> None:
        """Close what was idle for long, was closed by the other side, or is not needed."""
        now = self._now = self._clock()
        for connection in [one for one, (until, _) in self._absorbed.items() if until <= now]:
            connection.abort()
            faults.contained(connection, self._absorbed_ended, connection)
        for address, idle in list(self._idle.items()):
            since = now - IDLE if self._known is None or address in self._known else math.inf
            kept = [one for one in idle if one.is_open and one.idle_since >= since]
            for connection in set(idle) - set(kept):
                connection.abort()
            if kept:
                self._idle[address] = kept
            else:
                del self._idle[address]

    def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        for task in self._opening:
            task.cancel()
        for connection in tuple(self._absorbed):
            connection.abort()
            self._absorbed_ended(connection)
        for connection in [*self._busy, *(one for idle in self._idle.values() for one in idle)]:
            connection.abort()
        self._busy.clear()
        self._idle.clear()

    async def fetch(
        self,
        replica: Replica,
        head: bytes,
        deadline: float,
        leave: Callable[[HttpConnection], None] | None = None,
        *,
        body: Sequence[bytes] = (),
        most: int | None = None,
    ) -> Reply:
        """One whole request there and one whole reply back; for calls that need not be fast.

        Raises `NotSent`, `OutcomeUnknown` and `DeadlineExceeded` as every call to a Triton does.
        When the caller does not wait for an answer of which nothing has come, `leave` gets the
        connection; without it, it is closed. `BodyTooLarge` for an answer beyond `most` bytes.
        """
        connection: HttpConnection | None = None
        answer = _Whole(most)
        try:
            async with asyncio.timeout(deadline - self._clock()):
                connection = self.take(replica) or await self._connect(replica)
                connection.begin(answer)
                connection.write(head, *body)
                told, pieces = await answer.reply
                return Reply(told.status, await joined(pieces), told.headers)
        except TimeoutError as error:
            raise DeadlineExceeded from error
        finally:
            if connection is not None:
                self._end(connection, answer, leave)

    def _end(
        self,
        connection: HttpConnection,
        answer: "_Whole",
        leave: Callable[[HttpConnection], None] | None,
    ) -> None:
        """The caller of `fetch` waits no longer, with the whole answer or without."""
        if answer.reply.done() and not answer.reply.cancelled() and not answer.is_cut:
            self.give_back(connection)
        elif leave is not None and connection.awaits_answer:
            leave(connection)
        else:
            self.discard(connection)

    async def _open(
        self,
        replica: Replica,
        opened: Callable[[HttpConnection], None],
        failed: Callable[[NotSent], None],
    ) -> None:
        try:
            connection = await self._connect(replica)
        except NotSent as error:
            failed(error)
        else:
            opened(connection)

    async def _connect(self, replica: Replica) -> HttpConnection:
        loop = asyncio.get_running_loop()
        address = (replica.host, replica.http_port)
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(address), replica.host, replica.http_port
                )
        except Exception as error:  # of the socket, of the name, or of a transport closed meanwhile
            why = str(error) or f"no connection within {self._connect_timeout:.3g} s"
            raise NotSent(f"replica {replica.name} cannot be reached", why=why) from error
        if not connection.is_open:
            why = "it closed the connection at once"
            raise NotSent(f"replica {replica.name} cannot be reached", why=why)
        self._busy.add(connection)
        return connection


class _Whole:
    """Collects an answer: its head, and its body in pieces, of at most `most` bytes."""

    def __init__(self, most: int | None = None) -> None:
        self.is_cut = False  # it was larger
        self._most = most
        self._size = 0
        self.reply: asyncio.Future[tuple[ReplyHead, list[bytes]]] = (
            asyncio.get_running_loop().create_future()
        )
        self._head: ReplyHead | None = None
        self._body: list[bytes] = []

    def reply_head(self, head: ReplyHead, body: bytes, *, is_whole: bool) -> None:
        self._head = head
        self.reply_body(body)
        if is_whole:
            self.reply_end()

    def reply_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._most is None or self._size <= self._most:
            self._body.append(data)
            return
        self._body.clear()
        self.is_cut = True
        if not self.reply.done():
            self.reply.set_exception(BodyTooLarge(self._most))

    def reply_end(self) -> None:
        head = self._head
        if head is not None and not self.reply.done():
            self.reply.set_result((head, self._body))

    def reply_broken(self, why: str) -> None:
        if not self.reply.done():
            self.reply.set_exception(broken(why))

    def on_fault(self, error: Exception) -> None:
        faults.report(self, error)
        self.reply_broken(repr(error))

    def request_paused(self) -> None:
        """A question is small."""

    def request_resumed(self) -> None:
        """A question is small."""


class _Dropped:
    """Takes an answer that no caller waits for; `over` is called at its end."""

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over

    def reply_head(self, head: ReplyHead, body: bytes, *, is_whole: bool) -> None:
        if is_whole:
            self._over()

    def reply_body(self, data: bytes) -> None:
        """Dropped."""

    def reply_end(self) -> None:
        self._over()

    def reply_broken(self, why: str) -> None:
        self._over()

    def on_fault(self, error: Exception) -> None:
        faults.report(self, error)
        faults.contained(self, self._over)

    def request_paused(self) -> None:
        """The request is complete."""

    def request_resumed(self) -> None:
        """The request is complete."""


def broken(why: str, replica: str = "") -> OutcomeUnknown:
    """The error of a call whose connection broke after bytes were written."""
    return OutcomeUnknown(
        f"the connection to replica {replica} broke during the call".replace("  ", " "),
        why=why,
        try_this="retry only if the call may be executed twice",
    )


def request_line(method: str, replica: Replica, path: str) -> bytes:
    """The first lines of a request: what is asked for, and of which server."""
    return f"{method} {path} HTTP/1.1\r\nHost: {replica.http_url[7:]}\r\n".encode("latin-1")


def header_lines(headers: Headers) -> bytes:
    """Headers as they are written."""
    return b"".join(b"%b: %b\r\n" % header for header in headers)
