"""Replicas that hang: what is asked, whose calls end, and that long calls are left alone."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from builders import Clock, until
from grpc_wire import LIMITS, Triton, message
from loops import in_each_loop

from serve.app.hung_replicas import LOOK, SILENCES, HungReplicas
from serve.core.calls import Reply
from serve.core.errors import NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.proxy.health import Health
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_upstream import Upstream, UpstreamLeg
from serve.triton.http_pool import Pool, request_line
from serve.wire.hpack_blocks import literal
from serve.wire.http2 import END_STREAM

BOUND = 10.0  # seconds; a bound for what takes a fraction of one
PATIENCE = 0.05
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Triton's HTTP port: answers probes while it does not hang, and calls when it is told to."""

    def __init__(self) -> None:
        self.silences = 0.0  # so many of the next questions get no answer
        self.questions = 0
        self.answers = asyncio.Event()
        self.calls = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"/v2/health/live" in head:
                    self.questions += 1
                    if self.silences > 0:
                        self.silences -= 1
                        continue
                else:
                    self.calls += 1
                    await self.answers.wait()
                writer.write(OK)
        writer.close()


@dataclass(slots=True)
class GrpcCall:
    errors: list[Exception] = field(default_factory=list)

    def on_connected(self, upstream: Upstream) -> None:
        upstream.open(self, literal(b":path", b"/x"), message(b"x"), END_STREAM, None)

    def on_not_connected(self, error: NotSent) -> None:
        self.errors.append(error)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        self.errors.append(error)

    def never(self, *given: object) -> None:
        raise AssertionError("it is never answered")

    on_fault = on_not_connected
    on_answer = on_trailers = on_whole_answer = never


@dataclass
class Scene:
    server: Server
    listening: asyncio.Server
    triton: Triton
    replica: Replica
    http: Pool
    grpc: GrpcPool
    health: Health
    clock: Clock
    hanging: HungReplicas

    def look(self) -> None:
        self.clock.now += LOOK
        self.hanging.sweep()

    async def call(self) -> "asyncio.Task[Reply]":
        """A call over HTTP that has reached the server."""
        head = request_line("POST", self.replica, "/v2/models/m/infer") + b"\r\n"
        before = self.server.calls
        task = asyncio.create_task(self.http.fetch(self.replica, head, self.clock.now + BOUND))
        await until(lambda: self.server.calls > before)
        return task

    async def settled(self) -> None:
        await until(lambda: repr(self.hanging) == "<HungReplicas asks=[]>", within=BOUND)


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    server, triton, clock = Server(), Triton(), Clock()
    triton.answers = False
    await triton.start()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    replica = Replica("a", "127.0.0.1", listening.sockets[0].getsockname()[1], triton.port, 1)
    http = Pool(connect_timeout=5.0, clock=clock)
    grpc = GrpcPool(limits=LIMITS, connect_timeout=5.0, clock=clock)
    health = Health(clock)
    hanging = HungReplicas(
        http,
        grpc,
        replicas=lambda: {"a": replica},
        busy=lambda: ["a", "left"],
        health=health,
        clock=clock,
        patience=PATIENCE,
    )
    try:
        yield Scene(server, listening, triton, replica, http, grpc, health, clock, hanging)
    finally:
        hanging.close()
        http.close()
        grpc.close()
        triton.close()
        listening.close()


@in_each_loop
async def test_calls_on_a_replica_that_hangs_end_and_new_ones_avoid_it_until_it_answers() -> None:
    async with scene() as one:
        over_http, over_grpc = await one.call(), GrpcCall()
        one.grpc.wait(one.replica, over_grpc)
        await until(lambda: len(one.triton.calls) == 1)
        one.server.silences = math.inf
        one.look()
        one.look()
        with pytest.raises(OutcomeUnknown, match="answered no health probe for"):
            await over_http
        assert [type(error) for error in over_grpc.errors] == [OutcomeUnknown]
        assert one.server.questions == SILENCES
        assert not one.health.is_usable("a")
        with pytest.raises(OutcomeUnknown):
            await (await one.call())  # one that comes meanwhile
        one.server.silences = 0
        await one.settled()
        assert one.health.is_usable("a")


@in_each_loop
async def test_a_long_call_on_a_replica_that_answers_is_left_alone() -> None:
    async with scene() as one:
        call = await one.call()
        one.look()
        for questions in range(1, 6):
            one.look()
            await one.settled()
            assert one.server.questions == questions
        assert one.health.is_usable("a") and not call.done()
        one.server.answers.set()
        assert (await call).body == b"ok"


@in_each_loop
async def test_a_replica_is_not_asked_while_its_calls_are_short() -> None:
    async with scene() as one:
        for _ in range(5):
            one.server.answers.clear()
            call = await one.call()
            one.look()
            one.server.answers.set()
            await call
            one.clock.now += 0.1
            one.http.sweep()
        assert one.server.questions == 0 and one.http.idle == 1


@in_each_loop
async def test_a_replica_whose_port_is_closed_is_left_to_its_connections() -> None:
    async with scene() as one:
        call = await one.call()
        one.listening.close()
        one.look()
        for _ in range(2 * SILENCES):
            one.look()
            await one.settled()
        assert not call.done()
        one.server.answers.set()
        assert (await call).body == b"ok"


@in_each_loop
async def test_silence_that_is_shorter_ends_nothing() -> None:
    async with scene() as one:
        call = await one.call()
        one.server.silences = SILENCES - 1
        one.look()
        one.look()
        await one.settled()
        assert one.server.questions == SILENCES
        assert not call.done() and one.health.is_usable("a")
        one.server.answers.set()
        await call
