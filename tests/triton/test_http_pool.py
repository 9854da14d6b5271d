"""The pool of connections to Triton: reuse, framing of answers, deadlines, nothing left."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from builders import Clock, replica, until
from loops import in_each_loop

from serve.core.calls import Reply
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.triton.http_connection import HttpConnection
from serve.triton.http_pool import IDLE, Pool, header_lines, request_line

BOUND = 5.0  # seconds; a bound for what takes milliseconds
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LARGE = os.urandom(700_000)
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """Answers each question on a connection with the next of its answers; counts connections."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self.answers:
                await reader.readuntil(b"\r\n\r\n")
                answer = self.answers.pop(0)
                for start in range(0, len(answer), 7):  # in small pieces
                    writer.write(answer[start : start + 7])
                    await writer.drain()
            await reader.read()
        writer.close()


class Scene:
    """A pool, and one replica."""

    def __init__(self, pool: Pool, clock: Clock, to: Replica) -> None:
        self.pool = pool
        self.clock = clock
        self.replica = to

    async def ask(self, deadline: float = 30.0) -> Reply:
        head = request_line("GET", self.replica, "/v2/models/m") + b"\r\n"
        return await self.pool.fetch(self.replica, head, self.clock.now + deadline)

    @property
    def idle(self) -> list[HttpConnection]:
        return [one for idle in self.pool._idle.values() for one in idle]


@asynccontextmanager
async def scene(serve: Behaviour) -> AsyncIterator[Scene]:
    """Everything is closed at the end, and nothing may be busy."""
    clock = Clock()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pool = Pool(connect_timeout=1.0, clock=clock)
    async with asyncio.timeout(BOUND), server:
        yield Scene(pool, clock, replica(http=server.sockets[0].getsockname()[1]))
        assert pool.busy == 0
        pool.close()
        assert repr(pool) == "<Pool busy=0 idle=0 opening=0>"
        server.close()


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


@in_each_loop
async def test_every_framing_of_an_answer_is_read_and_the_connection_used_again() -> None:
    for answer, body in (
        (OK, b"ok"),
        (CHUNKS, b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 700000\r\n\r\n" + LARGE, LARGE),
    ):
        peer = Peer(answer, OK)
        async with scene(peer.serve) as it:
            assert [(await it.ask()).body, (await it.ask()).body] == [body, b"ok"], answer[:99]
        assert len(peer.connections) == 1, answer[:99]


@in_each_loop
async def test_a_reply_has_the_headers_that_do_not_belong_to_the_hop() -> None:
    peer = Peer(OK.replace(b"\r\n\r\n", b"\r\nConnection: x-a\r\nX-A: 1\r\nX-B: 2\r\n\r\n"))
    async with scene(peer.serve) as it:
        reply = await it.ask()
    assert reply == Reply(200, b"ok", ((b"content-length", b"2"), (b"x-b", b"2")))


def saying(answer: bytes) -> Behaviour:
    """Answers once, and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    return serve


@in_each_loop
async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async with scene(saying(b"HTTP/1.0 200 OK\r\n\r\nall of it")) as it:
        assert (await it.ask()).body == b"all of it"


@in_each_loop
async def test_an_answer_that_is_not_whole_leaves_the_outcome_unknown() -> None:
    for answer in (
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Type",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nlonger",
        CHUNKS[:-5],
        CHUNKS.replace(b"1\r\nc", b"x\r\nc"),
        b"not HTTP at all\r\n\r\n",
    ):
        async with scene(saying(answer)) as it:
            with pytest.raises(OutcomeUnknown, match="broke during the call"):
                raise AssertionError(f"{answer!r} is taken for {await it.ask()}")
            assert it.pool.idle == 0, answer


@in_each_loop
async def test_a_connection_that_the_other_side_will_close_is_not_used_again() -> None:
    peer = Peer(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK)
    async with scene(peer.serve) as it:
        await it.ask()
        await it.ask()
    assert len(peer.connections) == 2


@in_each_loop
async def test_a_connection_that_was_closed_while_idle_costs_no_call() -> None:
    peer = Peer(OK, OK)
    async with scene(peer.serve) as it:
        await it.ask()
        peer.connections[0].transport.abort()
        [idle] = it.idle
        await until(lambda: not idle.is_open)
        assert (await it.ask()).body == b"ok"
    assert len(peer.connections) == 2


@in_each_loop
async def test_an_idle_connection_reads_so_that_it_sees_the_other_side_close() -> None:
    peer = Peer(OK)
    async with scene(peer.serve) as it:
        await it.ask()
        connection = it.pool.take(it.replica)
        assert connection is not None
        connection.pause_answer()  # as a client that reads slowly does
        it.pool.give_back(connection)
        peer.connections[0].transport.abort()
        await until(lambda: not connection.is_open)
        it.pool.sweep()
        assert it.pool.idle == 0


@in_each_loop
async def test_an_idle_connection_to_a_replica_that_has_left_is_closed() -> None:
    async with scene(Peer(OK, OK, OK).serve) as it:
        await it.ask()
        it.pool.keep([it.replica])
        it.pool.sweep()
        assert it.pool.idle == 1
        it.pool.keep([replica(http=1)])
        await it.ask()  # by a snapshot that still has it
        it.pool.sweep()
        assert it.pool.idle == 0


@in_each_loop
async def test_bytes_that_nobody_asked_for_are_never_the_answer_to_the_next_call() -> None:
    free = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await free.wait()
        writer.write(OK.replace(b"ok", b"no"))
        await hang(reader, writer)

    async with scene(serve) as it:
        for _ in range(2):
            free.clear()
            assert (await it.ask()).body == b"ok"
            [idle] = it.idle
            free.set()
            await until(lambda one=idle: not one.is_open)  # type: ignore[misc]


@in_each_loop
async def test_many_calls_at_once_take_a_connection_each_and_leave_none_busy() -> None:
    peer = Peer(*[OK] * 40)
    async with scene(peer.serve) as it:
        for _ in range(2):
            replies = await asyncio.gather(*(it.ask() for _ in range(20)))
            assert [reply.body for reply in replies] == [b"ok"] * 20
        assert repr(it.pool) == "<Pool busy=0 idle=20 opening=0>"
        last = it.idle[-1]
        assert it.pool.take(it.replica) is last  # so that the others may be closed
        it.pool.give_back(last)
    assert len(peer.connections) == 20


@in_each_loop
async def test_an_answer_that_comes_too_late_is_a_deadline_exceeded() -> None:
    for left in (0.05, 0.0, -1.0):
        async with scene(hang) as it:
            with pytest.raises(DeadlineExceeded):
                await it.ask(left)
            assert it.pool.idle == 0, left


@in_each_loop
async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with scene(Peer(OK).serve) as it:
        await it.ask()
        for seconds, idle in ((IDLE, 1), (0.1, 0)):
            it.clock.now += seconds
            it.pool.sweep()
            assert it.pool.idle == idle


@in_each_loop
async def test_a_call_that_is_cancelled_takes_its_connection_along() -> None:
    async with scene(hang) as it:
        waiting = asyncio.create_task(it.ask())
        await until(lambda: it.pool.busy == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert it.pool.idle == 0


@in_each_loop
async def test_a_refused_connection_was_provably_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = int(server.getsockname()[1])
    async with scene(hang) as it:
        it.replica = replica(http=closed_port)
        with pytest.raises(NotSent, match="replica a cannot be reached"):
            await it.ask()


@in_each_loop
async def test_a_connection_that_is_not_accepted_in_time_was_provably_not_sent() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):  # the kernel drops whoever comes after these
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        pool = Pool(connect_timeout=0.05, clock=Clock())
        with pytest.raises(NotSent, match=r"within 0\.05 s"):
            await pool.fetch(replica(http=full.getsockname()[1]), b"", 2000.0)
        assert pool.busy == 0


@in_each_loop
async def test_a_replica_that_closes_every_connection_at_once_keeps_nobody_waiting() -> None:
    """Whether the pool sees it before or after it has written is a matter of luck."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with scene(serve) as it:
        for _ in range(50):
            with pytest.raises((NotSent, OutcomeUnknown)):
                await it.ask()


@in_each_loop
async def test_a_pool_that_is_closed_closes_what_is_being_opened_or_comes_back() -> None:
    async with scene(Peer(OK).serve) as it:
        await it.ask()
        connection = it.pool.take(it.replica)
        assert connection is not None
        told: list[object] = []
        it.pool.open(it.replica, opened=told.append, failed=told.append)
        it.pool.close()
        it.pool.give_back(connection)
        assert not connection.is_open
        await until(lambda: it.pool.busy == 0)
        assert told == []


def test_a_request_names_the_server_that_it_is_for() -> None:
    to = Replica("a", "::1", 8000, 8001, 8002, "default")
    start = request_line("POST", to, "/v2/models/m/infer")
    assert start == b"POST /v2/models/m/infer HTTP/1.1\r\nHost: [::1]:8000\r\n"
    assert header_lines(((b"a", b"1"), (b"b", b""))) == b"a: 1\r\nb: \r\n"
