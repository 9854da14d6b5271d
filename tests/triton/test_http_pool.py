"""The pool of connections to Triton: reuse, framing of answers, deadlines, nothing left."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from builders import Clock, replica, until

from serve.core.calls import Reply
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.triton.http_connection import HttpConnection
from serve.triton.http_pool import IDLE, Pool, header_lines, request_line

BOUND = 5.0  # seconds; a bound for what takes milliseconds
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Both event loops: workers run on uvloop, whose transports are of other classes."""
    runner: Run = request.param
    return runner


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


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"ok"),
        (CHUNKS, b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
    ids=["length", "chunks", "interim", "no content", "empty"],
)
def test_every_framing_of_an_answer_is_read_and_the_connection_used_again(
    run: Run, answer: bytes, body: bytes
) -> None:
    peer = Peer(answer, OK)

    async def scenario() -> list[bytes]:
        async with scene(peer.serve) as it:
            return [(await it.ask()).body, (await it.ask()).body]

    assert run(scenario()) == [body, b"ok"]
    assert len(peer.connections) == 1


def test_a_reply_has_the_headers_that_do_not_belong_to_the_hop(run: Run) -> None:
    peer = Peer(OK.replace(b"\r\n\r\n", b"\r\nConnection: x-a\r\nX-A: 1\r\nX-B: 2\r\n\r\n"))

    async def scenario() -> Reply:
        async with scene(peer.serve) as it:
            return await it.ask()

    assert run(scenario()) == Reply(200, b"ok", ((b"content-length", b"2"), (b"x-b", b"2")))


def test_an_answer_without_a_length_ends_with_its_connection(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        writer.close()

    async def scenario() -> bytes:
        async with scene(serve) as it:
            return (await it.ask()).body

    assert run(scenario()) == b"all of it"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Type",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nlonger",
        CHUNKS[:-5],
        CHUNKS.replace(b"1\r\nc", b"x\r\nc"),
        b"not HTTP at all\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_whole_leaves_the_outcome_unknown(run: Run, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def scenario() -> None:
        async with scene(serve) as it:
            with pytest.raises(OutcomeUnknown, match="broke during the call"):
                await it.ask()
            assert it.pool.idle == 0

    run(scenario())


def test_a_connection_that_the_other_side_will_close_is_not_used_again(run: Run) -> None:
    peer = Peer(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK)

    async def scenario() -> None:
        async with scene(peer.serve) as it:
            await it.ask()
            await it.ask()

    run(scenario())
    assert len(peer.connections) == 2


def test_a_connection_that_was_closed_while_idle_costs_no_call(run: Run) -> None:
    peer = Peer(OK, OK)

    async def scenario() -> bytes:
        async with scene(peer.serve) as it:
            await it.ask()
            peer.connections[0].transport.abort()
            [idle] = it.idle
            await until(lambda: not idle.is_open)
            return (await it.ask()).body

    assert run(scenario()) == b"ok"
    assert len(peer.connections) == 2


def test_an_idle_connection_reads_so_that_it_sees_the_other_side_close(run: Run) -> None:
    peer = Peer(OK)

    async def scenario() -> None:
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

    run(scenario())


def test_an_idle_connection_to_a_replica_that_has_left_is_closed(run: Run) -> None:
    peer = Peer(OK, OK, OK)

    async def scenario() -> None:
        async with scene(peer.serve) as it:
            await it.ask()
            it.pool.keep([it.replica])
            it.pool.sweep()
            assert it.pool.idle == 1
            it.pool.keep([replica(http=1)])
            await it.ask()  # by a snapshot that still has it
            it.pool.sweep()
            assert it.pool.idle == 0

    run(scenario())


def test_bytes_that_nobody_asked_for_are_never_the_answer_to_the_next_call(run: Run) -> None:
    async def scenario() -> list[bytes]:
        free = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await free.wait()
            writer.write(OK.replace(b"ok", b"no"))
            await hang(reader, writer)

        async with scene(serve) as it:
            bodies = []
            for _ in range(2):
                free.clear()
                bodies.append((await it.ask()).body)
                [idle] = it.idle
                free.set()
                await until(lambda one=idle: not one.is_open)  # type: ignore[misc]
            return bodies

    assert run(scenario()) == [b"ok", b"ok"]


def test_the_connection_that_was_used_last_is_taken_first(run: Run) -> None:
    peer = Peer(*[OK] * 3)

    async def scenario() -> None:
        async with scene(peer.serve) as it:
            await asyncio.gather(it.ask(), it.ask())
            last = it.idle[-1]
            assert it.pool.take(it.replica) is last
            it.pool.give_back(last)

    run(scenario())


def test_many_calls_at_once_take_a_connection_each_and_leave_none_busy(run: Run) -> None:
    peer = Peer(*[OK] * 40)

    async def scenario() -> str:
        async with scene(peer.serve) as it:
            replies = await asyncio.gather(*(it.ask() for _ in range(20)))
            assert [reply.body for reply in replies] == [b"ok"] * 20
            await asyncio.gather(*(it.ask() for _ in range(20)))
            return repr(it.pool)

    assert run(scenario()) == "<Pool busy=0 idle=20 opening=0>"
    assert len(peer.connections) == 20


@pytest.mark.parametrize("left", [0.05, 0.0, -1.0])
def test_an_answer_that_comes_too_late_is_a_deadline_exceeded(run: Run, left: float) -> None:
    async def scenario() -> None:
        async with scene(hang) as it:
            with pytest.raises(DeadlineExceeded):
                await it.ask(left)
            assert it.pool.idle == 0

    run(scenario())


def test_an_idle_connection_is_closed_after_a_while(run: Run) -> None:
    peer = Peer(OK)

    async def scenario() -> list[int]:
        async with scene(peer.serve) as it:
            await it.ask()
            seen = []
            for seconds in (IDLE, 0.1):
                it.clock.now += seconds
                it.pool.sweep()
                seen.append(it.pool.idle)
            return seen

    assert run(scenario()) == [1, 0]


def test_a_call_that_is_cancelled_takes_its_connection_along(run: Run) -> None:
    async def scenario() -> int:
        async with scene(hang) as it:
            waiting = asyncio.create_task(it.ask())
            await until(lambda: it.pool.busy == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return it.pool.idle

    assert run(scenario()) == 0


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_refused_connection_was_provably_not_sent(run: Run) -> None:
    async def scenario() -> None:
        async with scene(hang) as it:
            it.replica = replica(http=closed_port())
            with pytest.raises(NotSent, match="replica a cannot be reached"):
                await it.ask()

    run(scenario())


def test_a_connection_that_is_not_accepted_in_time_was_provably_not_sent(run: Run) -> None:
    async def scenario(port: int) -> None:
        pool = Pool(connect_timeout=0.05, clock=Clock())
        with pytest.raises(NotSent, match=r"within 0\.05 s"):
            await pool.fetch(replica(http=port), b"", 2000.0)
        assert pool.busy == 0

    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):  # the kernel drops whoever comes after these
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        run(scenario(full.getsockname()[1]))


def test_a_replica_that_closes_every_connection_at_once_keeps_nobody_waiting(run: Run) -> None:
    """Whether the pool sees it before or after it has written is a matter of luck."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def scenario() -> None:
        async with scene(serve) as it:
            for _ in range(50):
                with pytest.raises((NotSent, OutcomeUnknown)):
                    await it.ask()

    run(scenario())


def test_a_pool_that_is_closed_closes_what_is_being_opened(run: Run) -> None:
    async def scenario() -> None:
        async with scene(hang) as it:
            told: list[object] = []
            it.pool.open(it.replica, opened=told.append, failed=told.append)
            it.pool.close()
            await until(lambda: it.pool.busy == 0)
            assert told == []

    run(scenario())


def test_a_connection_that_comes_back_after_the_end_is_closed(run: Run) -> None:
    peer = Peer(OK)

    async def scenario() -> None:
        async with scene(peer.serve) as it:
            await it.ask()
            connection = it.pool.take(it.replica)
            assert connection is not None
            it.pool.close()
            it.pool.give_back(connection)
            assert not connection.is_open

    run(scenario())


def test_a_large_answer_to_a_question_arrives_whole(run: Run) -> None:
    body = os.urandom(700_000)
    peer = Peer(b"HTTP/1.1 200 OK\r\nContent-Length: 700000\r\n\r\n" + body)

    async def scenario() -> bytes:
        async with scene(peer.serve) as it:
            return (await it.ask()).body

    assert run(scenario()) == body


def test_a_request_names_the_server_that_it_is_for() -> None:
    to = Replica("a", "::1", 8000, 8001, 8002, "default")
    start = request_line("POST", to, "/v2/models/m/infer")
    assert start == b"POST /v2/models/m/infer HTTP/1.1\r\nHost: [::1]:8000\r\n"
    assert header_lines(((b"a", b"1"), (b"b", b""))) == b"a: 1\r\nb: \r\n"
