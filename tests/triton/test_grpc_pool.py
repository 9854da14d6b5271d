"""The gRPC pool: connections are opened when needed, shared, and closed when they are not."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from builders import Clock, until
from grpc_wire import (
    BOUND,
    GOAWAY,
    LIMITS,
    LOOPS,
    RST_STREAM,
    Peer,
    Triton,
    goaway,
    message,
    settings,
)
from tritonclient.grpc import service_pb2

from serve.core.errors import NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_upstream import Leg, Upstream
from serve.wire.grpc_heads import AnswerHead
from serve.wire.hpack_blocks import literal
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece

T = TypeVar("T")
PATH = literal(b":path", b"/x")


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(slots=True)
class Caller:
    """Makes one call and writes down what comes of it."""

    body: bytes = b""
    statuses: list[int] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    upstream: Upstream | None = None

    def on_connected(self, upstream: Upstream) -> None:
        self.upstream = upstream
        upstream.open(self, PATH, message(b"x"), END_STREAM, None)

    def on_not_connected(self, error: NotSent) -> None:
        self.errors.append(error)

    def on_answer(self, leg: Leg, piece: Piece) -> None:
        self.body += piece
        leg.consume(len(piece))

    def on_trailers(self, leg: Leg, trailers: AnswerHead) -> None:
        self.statuses.append(trailers.status)

    def on_whole_answer(self, leg: Leg, piece: Piece, trailers: AnswerHead) -> None:
        self.on_answer(leg, piece)
        self.on_trailers(leg, trailers)

    def on_lost(self, leg: Leg, error: NotSent | OutcomeUnknown) -> None:
        self.errors.append(error)

    def on_fault(self, error: Exception) -> None:
        self.errors.append(error)

    @property
    def is_over(self) -> bool:
        return bool(self.statuses or self.errors)


@dataclass(slots=True)
class Scene:
    """A pool and one Triton."""

    pool: GrpcPool
    triton: Triton
    clock: Clock

    @property
    def replica(self) -> Replica:
        return Replica("a", "127.0.0.1", 1, self.triton.port, 1)

    def call(self) -> Caller:
        caller = Caller()
        upstream = self.pool.find(self.replica)
        if upstream is None:
            self.pool.wait(self.replica, caller)
        else:
            caller.on_connected(upstream)
        self.pool.board.flush()
        return caller

    async def over(self, *callers: Caller) -> None:
        await until(lambda: all(caller.is_over for caller in callers), within=BOUND)


def play(
    scenario: Callable[[Scene], Awaitable[T]], loop: str, *, connect_timeout: float = 5.0
) -> T:
    async def act() -> T:
        triton, clock = Triton(), Clock()
        await triton.start()
        pool = GrpcPool(limits=LIMITS, connect_timeout=connect_timeout, clock=clock)
        try:
            async with asyncio.timeout(BOUND):
                return await scenario(Scene(pool, triton, clock))
        finally:
            pool.close()
            triton.close()
            await until(lambda: pool.connections == pool.streams == 0)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(act())


def test_calls_share_one_connection(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, list[int]]:
        callers = [scene.call() for _ in range(20)]
        await scene.over(*callers)
        return len(scene.triton.peers), [status for c in callers for status in c.statuses]

    assert play(scenario, loop) == (1, [0] * 20)


def test_busy_connections_get_company_up_to_four(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, int, int]:
        scene.triton.answers = False
        callers: list[Caller] = []
        while scene.pool.connections < 4:
            callers.append(scene.call())
            await asyncio.sleep(0)
        callers += [scene.call() for _ in range(200)]
        await until(lambda: len(scene.triton.calls) == len(callers))
        calls = [sum(map(bool, peer.streams)) for peer in scene.triton.peers]
        for peer in scene.triton.peers:
            for stream in [s for s in peer.streams if s]:
                scene.triton.answer(stream, peer=peer)
        await scene.over(*callers)
        return len(scene.triton.peers), min(calls), max(calls) * 4 - len(callers)

    connections, fewest, uneven = play(scenario, loop)
    assert connections == 4
    assert fewest >= 32
    assert uneven < 200


def test_the_servers_limit_of_streams_is_kept_and_calls_wait_for_room(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, list[int]]:
        scene.triton.greeting = settings(streams=1)
        scene.triton.answers = False
        callers = [scene.call() for _ in range(6)]
        await until(lambda: len(scene.triton.calls) >= 4)
        waiting = sum(caller.upstream is None for caller in callers)
        while not all(caller.is_over for caller in callers):
            for peer in scene.triton.peers:
                for stream, received in sorted(peer.streams.items()):
                    if stream and received.ended:
                        received.ended = False
                        scene.triton.answer(stream, peer=peer)
            await asyncio.sleep(0)
        return waiting, [status for caller in callers for status in caller.statuses]

    waiting, statuses = play(scenario, loop)
    assert waiting >= 2
    assert statuses == [0] * 6


def test_a_replica_that_refuses_connections_is_told_to_all_who_wait(loop: str) -> None:
    async def scenario(scene: Scene) -> list[Exception]:
        scene.triton.close()
        callers = [scene.call() for _ in range(3)]
        await scene.over(*callers)
        return [error for caller in callers for error in caller.errors]

    errors = play(scenario, loop)
    assert len(errors) == 3
    assert all(isinstance(error, NotSent) for error in errors)


def test_a_server_that_speaks_no_http2_is_not_sent_anything(loop: str) -> None:
    async def scenario(scene: Scene) -> list[Exception]:
        scene.triton.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        caller = scene.call()
        await scene.over(caller)
        return caller.errors

    [error] = play(scenario, loop)
    assert isinstance(error, NotSent)


def test_a_server_that_says_nothing_is_given_up_in_time(loop: str) -> None:
    async def scenario(scene: Scene) -> list[Exception]:
        scene.triton.greeting = b""
        pool = GrpcPool(limits=LIMITS, connect_timeout=0.02, clock=scene.clock)
        caller = Caller()
        pool.wait(scene.replica, caller)
        await scene.over(caller)
        pool.close()
        return caller.errors

    [error] = play(scenario, loop)
    assert isinstance(error, NotSent)


def test_a_goodbye_lets_calls_end_and_opens_another_connection(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, list[int], bool]:
        scene.triton.answers = False
        first, second = scene.call(), scene.call()
        await until(lambda: len(scene.triton.calls) == 2)
        peer = scene.triton.peer
        peer.send(goaway(1))
        await scene.over(second)
        assert isinstance(second.errors[0], NotSent)
        scene.triton.answers = True
        third = scene.call()
        await scene.over(third)
        scene.triton.answer(1, peer=peer)
        await scene.over(first)
        await until(lambda: peer.is_closed)
        return len(scene.triton.peers), first.statuses, third.statuses == [0]

    assert play(scenario, loop) == (2, [0], True)


def test_a_connection_that_breaks_leaves_written_calls_unknown(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[list[Exception], int]:
        scene.triton.answers = False
        callers = [scene.call() for _ in range(3)]
        await until(lambda: len(scene.triton.calls) == 3)
        scene.triton.peer.abort()
        await scene.over(*callers)
        return [error for caller in callers for error in caller.errors], scene.pool.connections

    errors, connections = play(scenario, loop)
    assert [type(error) for error in errors] == [OutcomeUnknown] * 3
    assert connections == 0


def test_idle_connections_are_closed_and_their_replicas_forgotten(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        await scene.over(scene.call())
        seen = []
        for seconds in (0.1, 59.0, 2.0):
            scene.clock.now += seconds
            scene.pool.sweep()
            seen.append(scene.pool.connections)
        await until(lambda: scene.triton.peer.is_closed)
        return seen

    assert play(scenario, loop) == [1, 1, 0]


def test_a_replica_that_has_moved_is_found_where_it_is(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[list[int], bool]:
        await scene.over(scene.call())
        other = Triton()
        await other.start()
        caller = Caller()
        moved = replace(scene.replica, grpc_port=other.port)
        assert scene.pool.find(moved) is None
        scene.pool.wait(moved, caller)
        await scene.over(caller)
        scene.pool.sweep()
        await until(lambda: scene.triton.peer.is_closed)
        other.close()
        return caller.statuses, bool(other.calls)

    assert play(scenario, loop) == ([0], True)


@pytest.mark.parametrize(
    ("version", "is_safe"),
    [("2.51.0", False), ("2.52.9", False), ("2.53.0", True), ("3.0", True), ("dev", False)],
)
def test_a_triton_is_asked_once_whether_it_survives_cancelled_calls(
    loop: str, version: str, is_safe: bool
) -> None:
    response = service_pb2.ServerMetadataResponse(name="triton", version=version)

    async def scenario(scene: Scene) -> tuple[bool, bool, int]:
        scene.triton.says = lambda request: bytes(response.SerializeToString())
        await scene.over(scene.call())
        before = scene.pool.survives_cancelling(scene.replica)
        scene.pool.board.flush()
        await until(lambda: len(scene.triton.calls) == 2 and scene.pool.streams == 0)
        for _ in range(3):
            scene.pool.survives_cancelling(scene.replica)
        scene.pool.board.flush()
        return before, scene.pool.survives_cancelling(scene.replica), len(scene.triton.calls)

    assert play(scenario, loop) == (False, is_safe, 2)


def test_an_absorbed_call_runs_to_its_end(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, int, list[int]]:
        scene.triton.answers = False
        caller = scene.call()
        await until(lambda: len(scene.triton.calls) == 1)
        assert caller.upstream is not None
        leg = caller.upstream.streams[1]
        assert isinstance(leg, Leg)
        scene.pool.absorb(leg)
        before = scene.pool.streams
        scene.triton.answer(1, bytes(3 << 14))
        await until(lambda: scene.pool.streams == 0)
        return before, len(scene.triton.peer.of(RST_STREAM)), caller.statuses

    assert play(scenario, loop) == (1, 0, [])


def test_pushes_and_answers_to_nothing_end_the_connection(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        codes = []
        for sent in (b"\x00\x00\x04\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02",
                     b"\x00\x00\x01\x01\x05\x00\x00\x00\x09\x88"):  # fmt: skip
            scene.triton.peers.clear()
            caller = scene.call()
            await scene.over(caller)
            peer = scene.triton.peer
            peer.send(sent)
            await until(lambda peer=peer: peer.is_closed)
            codes += [one.code for one in peer.of(GOAWAY)]
        return codes

    assert play(scenario, loop) == [1, 1]


def test_a_connection_made_in_the_turn_in_which_its_time_is_over_takes_no_calls() -> None:
    """uvloop closes its transport then, and does not say so: every later call would be lost."""

    async def scenario(scene: Scene) -> list[int]:
        greet = scene.triton.on_connected

        def keep_the_loop_busy(peer: Peer) -> None:
            greet(peer)
            scene.triton.on_connected = greet
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass

        scene.triton.on_connected = keep_the_loop_busy
        first = scene.call()
        await scene.over(first)
        others = [scene.call() for _ in range(3)]
        await scene.over(*others)
        return [status for one in others for status in one.statuses]

    assert play(scenario, "uvloop", connect_timeout=0.2) == [0, 0, 0]


class Faulty(Caller):
    """A caller whose code fails at what `fails_at` names."""

    fails_at = ""

    def _fail(self, where: str) -> None:
        if self.fails_at == where:
            raise ZeroDivisionError(where)

    def on_connected(self, upstream: Upstream) -> None:
        super().on_connected(upstream)
        self._fail("connected")

    def on_not_connected(self, error: NotSent) -> None:
        self._fail("not connected")

    def on_answer(self, leg: Leg, piece: Piece) -> None:
        self._fail("answer")
        super().on_answer(leg, piece)

    def on_trailers(self, leg: Leg, trailers: AnswerHead) -> None:
        self._fail("trailers")
        super().on_trailers(leg, trailers)

    def on_lost(self, leg: Leg, error: NotSent | OutcomeUnknown) -> None:
        self._fail("lost")


def faulty(where: str) -> Faulty:
    caller = Faulty()
    caller.fails_at = where
    return caller


@pytest.mark.parametrize("where", ["connected", "answer", "trailers"])
def test_a_caller_that_fails_costs_neither_the_connection_nor_other_calls(where: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, list[str], list[int]]:
        bad, others = faulty(where), [Caller(), Caller()]
        for caller in (others[0], bad, others[1]):
            scene.pool.wait(scene.replica, caller)
        await scene.over(*others, bad)
        return len(scene.triton.peers), list(map(str, bad.errors)), others[0].statuses

    assert play(scenario, "uvloop") == (1, [where], [0])


def test_a_caller_that_fails_when_its_call_is_lost_does_not_keep_it_from_the_others() -> None:
    async def scenario(scene: Scene) -> tuple[list[str], list[type[Exception]]]:
        scene.triton.answers = False
        bad, other = faulty("lost"), Caller()
        for caller in (bad, other):
            scene.pool.wait(scene.replica, caller)
        await until(lambda: len(scene.triton.calls) == 2)
        scene.triton.peer.abort()
        await scene.over(bad, other)
        return list(map(str, bad.errors)), list(map(type, other.errors))

    assert play(scenario, "uvloop") == (["lost"], [OutcomeUnknown])


def test_a_caller_that_fails_when_there_is_no_connection_does_not_keep_it_from_the_others() -> None:
    async def scenario(scene: Scene) -> tuple[list[str], list[type[Exception]]]:
        scene.triton.close()
        bad, other = faulty("not connected"), Caller()
        for caller in (bad, other):
            scene.pool.wait(scene.replica, caller)
        await scene.over(bad, other)
        return list(map(str, bad.errors)), list(map(type, other.errors))

    assert play(scenario, "uvloop") == (["not connected"], [NotSent])
