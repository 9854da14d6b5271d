"""The pool of connections to Triton: reuse, framing of answers, deadlines, nothing left."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from builders import replica, until

from serve.core.calls import Reply
from serve.core.errors import DeadlineExceeded, OutcomeUnknown
from serve.triton.http_pool import IDLE, Pool, request_head

BOUND = 5.0  # seconds; a bound for what takes milliseconds
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Both event loops: workers run on uvloop, whose transports are of other classes."""
    runner: Run = request.param
    return runner


class Clock:
    """Time as the test says it is."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Peer:
    """Answers each request on a connection with the next of its answers; counts connections."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections: list[asyncio.StreamWriter] = []
        self.received = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                self.received = await reader.readexactly(length)
                answer = self.answers.pop(0)
                for start in range(0, len(answer), 7):  # in small pieces
                    writer.write(answer[start : start + 7])
                    await writer.drain()
            await reader.read()
        writer.close()


@asynccontextmanager
async def scene(
    serve: Behaviour,
) -> AsyncIterator[tuple[Pool, Clock, Callable[..., Awaitable[Reply]]]]:
    clock = Clock()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    to = replica(http=server.sockets[0].getsockname()[1])
    pool = Pool(connect_timeout=1.0, clock=clock)

    async def send(body: bytes = b"{}", deadline: float | None = None) -> Reply:
        head = request_head("POST", to, "/v2/models/m/infer", (), len(body))
        return await pool.send(to, head, body, deadline)

    async with asyncio.timeout(BOUND), server, pool:
        yield pool, clock, send
        server.close()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            b"abc",
        ),
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
        async with scene(peer.serve) as (_, _, send):
            return [(await send()).body, (await send()).body]

    assert run(scenario()) == [body, b"ok"]
    assert len(peer.connections) == 1


def test_an_answer_without_a_length_ends_with_its_connection(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        writer.close()

    async def scenario() -> bytes:
        async with scene(serve) as (_, _, send):
            return (await send()).body

    assert run(scenario()) == b"all of it"


def test_a_connection_that_the_other_side_will_close_is_not_used_again(run: Run) -> None:
    peer = Peer(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), OK)

    async def scenario() -> None:
        async with scene(peer.serve) as (_, _, send):
            await send()
            await send()

    run(scenario())
    assert len(peer.connections) == 2


def test_a_connection_that_was_closed_while_idle_costs_no_call(run: Run) -> None:
    peer = Peer(OK, OK)

    async def scenario() -> bytes:
        async with scene(peer.serve) as (pool, _, send):
            await send()
            peer.connections[0].transport.abort()
            [[idle]] = pool._idle.values()
            await until(lambda: not idle.is_open)
            return (await send()).body

    assert run(scenario()) == b"ok"
    assert len(peer.connections) == 2


def test_bytes_that_nobody_asked_for_are_never_the_answer_to_the_next_call(run: Run) -> None:
    peer = Peer(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse", OK)

    async def scenario() -> list[bytes]:
        async with scene(peer.serve) as (_, _, send):
            bodies = [(await send()).body]
            with contextlib.suppress(OutcomeUnknown):
                bodies.append((await send()).body)
            return bodies

    assert b"false" not in run(scenario())


def test_many_calls_at_once_take_a_connection_each_and_leave_none_busy(run: Run) -> None:
    peer = Peer(*[OK] * 40)

    async def scenario() -> str:
        async with scene(peer.serve) as (pool, _, send):
            replies = await asyncio.gather(*(send() for _ in range(20)))
            assert [reply.body for reply in replies] == [b"ok"] * 20
            await asyncio.gather(*(send() for _ in range(20)))
            return repr(pool)

    assert run(scenario()) == "<Pool busy=0 idle=20>"
    assert len(peer.connections) == 20


def test_a_deadline_ends_the_call_and_its_connection(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> str:
        async with scene(serve) as (pool, clock, send):
            waiting = asyncio.create_task(send(deadline=clock.now + 3))  # type: ignore[arg-type]
            await until(lambda: "busy=1" in repr(pool))
            clock.now += 2.9
            pool.sweep()
            assert not waiting.done()
            clock.now += 0.2
            pool.sweep()
            with pytest.raises(DeadlineExceeded):
                await waiting
            return repr(pool)

    assert run(scenario()) == "<Pool busy=0 idle=0>"


def test_an_idle_connection_is_closed_after_a_while(run: Run) -> None:
    peer = Peer(OK)

    async def scenario() -> list[str]:
        async with scene(peer.serve) as (pool, clock, send):
            await send()
            clock.now += IDLE
            pool.sweep()
            seen = [repr(pool)]
            clock.now += 0.1
            pool.sweep()
            return [*seen, repr(pool)]

    assert run(scenario()) == ["<Pool busy=0 idle=1>", "<Pool busy=0 idle=0>"]


def test_a_call_that_is_cancelled_takes_its_connection_along(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> str:
        async with scene(serve) as (pool, _, send):
            waiting = asyncio.create_task(send())  # type: ignore[arg-type]
            await until(lambda: "busy=1" in repr(pool))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return repr(pool)

    assert run(scenario()) == "<Pool busy=0 idle=0>"


@pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20])
def test_bodies_of_every_size_arrive_whole_in_both_directions(run: Run, size: int) -> None:
    body = os.urandom(size)
    peer = Peer(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % min(size, 70_000) + body[:70_000]
    )

    async def scenario() -> Reply:
        async with scene(peer.serve) as (_, _, send):
            return await send(body)

    assert run(scenario()).body == body[:70_000]
    assert peer.received == body
