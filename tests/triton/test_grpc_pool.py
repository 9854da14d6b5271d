"""The gRPC pool: connections are opened when needed, shared, and closed when they are not.

Questions to one replica go over its connections as well.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest
from builders import Clock, until
from grpc_wire import (
    BOUND,
    GOAWAY,
    LIMITS,
    LOOPS,
    RST_STREAM,
    STREAM,
    Peer,
    Triton,
    goaway,
    message,
    settings,
)
from tritonclient.grpc import service_pb2

from serve.core.calls import Reply
from serve.core.errors import BodyTooLarge, DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_question import ask
from serve.triton.grpc_upstream import Upstream, UpstreamLeg
from serve.wire.grpc_heads import AnswerHead
from serve.wire.hpack_blocks import literal
from serve.wire.http2 import END_STREAM
from serve.wire.http2_stream import Piece

PATH = literal(b":path", b"/x")


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

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        self.body += piece
        leg.consume(len(piece))

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        self.statuses.append(trailers.status)

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        self.on_answer(leg, piece)
        self.on_trailers(leg, trailers)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
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

    async def question(
        self, body: bytes = b"", *, seconds: float = BOUND, limit: int = 1 << 20
    ) -> Reply:
        return await ask(self.pool, self.replica, STREAM, body, seconds=seconds, limit=limit)

    async def over(self, *callers: Caller) -> None:
        await until(lambda: all(caller.is_over for caller in callers), within=BOUND)


def play(
    scenario: Callable[[Scene], Awaitable[None]], loop: str, *, connect_timeout: float = 5.0
) -> None:
    async def act() -> None:
        triton, clock = Triton(), Clock()
        await triton.start()
        pool = GrpcPool(limits=LIMITS, connect_timeout=connect_timeout, clock=clock)
        try:
            async with asyncio.timeout(BOUND):
                await scenario(Scene(pool, triton, clock))
        finally:
            pool.close()
            triton.close()
            await until(lambda: pool.connections == pool.streams == pool.board.held == 0)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(act())


def on_both_loops(scenario: Callable[[Scene], Awaitable[None]]) -> Callable[..., None]:
    @pytest.mark.parametrize("loop", LOOPS)
    def on_one_loop(loop: str) -> None:
        play(scenario, loop)

    return on_one_loop


@on_both_loops
async def test_calls_share_one_connection(scene: Scene) -> None:
    callers = [scene.call() for _ in range(20)]
    await scene.over(*callers)
    assert len(scene.triton.peers) == 1
    assert [caller.statuses for caller in callers] == [[0]] * 20


@on_both_loops
async def test_busy_connections_get_company_up_to_four(scene: Scene) -> None:
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
    assert len(scene.triton.peers) == 4
    assert min(calls) >= 32
    assert max(calls) * 4 - len(callers) < 200


@on_both_loops
async def test_the_servers_limit_of_streams_is_kept_and_calls_wait_for_room(scene: Scene) -> None:
    scene.triton.greeting = settings(streams=1)
    scene.triton.answers = False
    callers = [scene.call() for _ in range(6)]
    await until(lambda: len(scene.triton.calls) >= 4)
    assert sum(caller.upstream is None for caller in callers) >= 2
    while not all(caller.is_over for caller in callers):
        for peer in scene.triton.peers:
            for stream, received in sorted(peer.streams.items()):
                if stream and received.ended:
                    received.ended = False
                    scene.triton.answer(stream, peer=peer)
        await asyncio.sleep(0)
    assert [caller.statuses for caller in callers] == [[0]] * 6


@on_both_loops
async def test_a_replica_that_refuses_connections_is_told_to_all_who_wait(scene: Scene) -> None:
    scene.triton.close()
    callers = [scene.call() for _ in range(3)]
    await scene.over(*callers)
    assert [[type(error) for error in caller.errors] for caller in callers] == [[NotSent]] * 3


@on_both_loops
async def test_a_server_that_speaks_no_http2_is_not_sent_anything(scene: Scene) -> None:
    scene.triton.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    caller = scene.call()
    await scene.over(caller)
    [error] = caller.errors
    assert isinstance(error, NotSent)


@on_both_loops
async def test_a_server_that_says_nothing_is_given_up_in_time(scene: Scene) -> None:
    scene.triton.greeting = b""
    pool = GrpcPool(limits=LIMITS, connect_timeout=0.02, clock=scene.clock)
    caller = Caller()
    pool.wait(scene.replica, caller)
    await scene.over(caller)
    pool.close()
    [error] = caller.errors
    assert isinstance(error, NotSent)


@on_both_loops
async def test_a_goodbye_lets_calls_end_and_opens_another_connection(scene: Scene) -> None:
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
    assert len(scene.triton.peers) == 2
    assert first.statuses == third.statuses == [0]


@on_both_loops
async def test_a_connection_that_breaks_leaves_written_calls_unknown(scene: Scene) -> None:
    scene.triton.answers = False
    callers = [scene.call() for _ in range(3)]
    await until(lambda: len(scene.triton.calls) == 3)
    scene.triton.peer.abort()
    await scene.over(*callers)
    errors = [[type(error) for error in caller.errors] for caller in callers]
    assert errors == [[OutcomeUnknown]] * 3
    assert scene.pool.connections == 0


@on_both_loops
async def test_idle_connections_are_closed_and_their_replicas_forgotten(scene: Scene) -> None:
    await scene.over(scene.call())
    for seconds, connections in ((0.1, 1), (59.0, 1), (2.0, 0)):
        scene.clock.now += seconds
        scene.pool.sweep()
        assert scene.pool.connections == connections
    await until(lambda: scene.triton.peer.is_closed)


@on_both_loops
async def test_a_replica_that_has_moved_is_found_where_it_is(scene: Scene) -> None:
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
    assert caller.statuses == [0]
    assert other.calls


@pytest.mark.parametrize("loop", LOOPS)
def test_a_triton_is_asked_once_whether_it_survives_cancelled_calls(loop: str) -> None:
    for version, is_safe in (
        ("2.51.0", False),
        ("2.52.9", False),
        ("2.53.0", True),
        ("3.0", True),
        ("dev", False),
    ):
        response = service_pb2.ServerMetadataResponse(name="triton", version=version)
        answer = bytes(response.SerializeToString())

        async def scenario(scene: Scene, answer: bytes = answer, expected: bool = is_safe) -> None:
            scene.triton.says = lambda request: answer
            await scene.over(scene.call())
            assert not scene.pool.survives_cancelling(scene.replica)
            scene.pool.board.flush()
            await until(lambda: len(scene.triton.calls) == 2 and scene.pool.streams == 0)
            for _ in range(3):
                scene.pool.survives_cancelling(scene.replica)
            scene.pool.board.flush()
            assert scene.pool.survives_cancelling(scene.replica) == expected, answer
            assert len(scene.triton.calls) == 2

        play(scenario, loop)


@on_both_loops
async def test_an_absorbed_call_runs_to_its_end(scene: Scene) -> None:
    scene.triton.answers = False
    caller = scene.call()
    await until(lambda: len(scene.triton.calls) == 1)
    assert caller.upstream is not None
    leg = caller.upstream.streams[1]
    assert isinstance(leg, UpstreamLeg)
    scene.pool.absorb(leg)
    assert scene.pool.streams == 1
    scene.triton.answer(1, bytes(3 << 14))
    await until(lambda: scene.pool.streams == 0)
    assert not scene.triton.peer.of(RST_STREAM)
    assert caller.statuses == []


@on_both_loops
async def test_pushes_and_answers_to_nothing_end_the_connection(scene: Scene) -> None:
    for sent in (b"\x00\x00\x04\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02",
                 b"\x00\x00\x01\x01\x05\x00\x00\x00\x09\x88"):  # fmt: skip
        scene.triton.peers.clear()
        await scene.over(scene.call())
        peer = scene.triton.peer
        peer.send(sent)
        await until(lambda peer=peer: peer.is_closed)
        assert [one.code for one in peer.of(GOAWAY)] == [1], sent


def test_a_connection_made_in_the_turn_in_which_its_time_is_over_takes_no_calls() -> None:
    """uvloop closes its transport then, and does not say so: every later call would be lost."""

    async def scenario(scene: Scene) -> None:
        greet = scene.triton.on_connected

        def keep_the_loop_busy(peer: Peer) -> None:
            greet(peer)
            scene.triton.on_connected = greet
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass

        scene.triton.on_connected = keep_the_loop_busy
        await scene.over(scene.call())
        others = [scene.call() for _ in range(3)]
        await scene.over(*others)
        assert [one.statuses for one in others] == [[0]] * 3

    play(scenario, "uvloop", connect_timeout=0.2)


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

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        self._fail("answer")
        super().on_answer(leg, piece)

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        self._fail("trailers")
        super().on_trailers(leg, trailers)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        self._fail("lost")


@pytest.mark.parametrize("where", ["connected", "answer", "trailers", "lost", "not connected"])
def test_a_caller_that_fails_costs_neither_the_connection_nor_other_calls(where: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.triton.answers = where != "lost"
        if where == "not connected":
            scene.triton.close()
        bad, others = Faulty(), [Caller(), Caller()]
        bad.fails_at = where
        for caller in (others[0], bad, others[1]):
            scene.pool.wait(scene.replica, caller)
        if where == "lost":
            await until(lambda: len(scene.triton.calls) == 3)
            scene.triton.peer.abort()
        await scene.over(*others, bad)
        assert list(map(str, bad.errors)) == [where]
        ends = {"lost": OutcomeUnknown, "not connected": NotSent}
        if where in ends:
            assert [type(one.errors[0]) for one in others] == [ends[where]] * 2
        else:
            assert len(scene.triton.peers) == 1
            assert [one.statuses for one in others] == [[0], [0]]

    play(scenario, "uvloop")


# --- questions ------------------------------------------------------------------------------------


@on_both_loops
async def test_a_question_has_one_whole_answer(scene: Scene) -> None:
    for size in (0, 10, 200_000):
        scene.triton.says = lambda request, size=size: request * size
        for _ in range(2):
            assert await scene.question(b"x") == Reply(0, b"x" * size)


@on_both_loops
async def test_a_status_comes_with_its_message_and_a_break_leaves_the_outcome_unknown(
    scene: Scene,
) -> None:
    scene.triton.answers = False
    asking = [asyncio.ensure_future(scene.question()) for _ in range(2)]
    await until(lambda: [call.ended for call in scene.triton.calls] == [True, True])
    scene.triton.refuse(1, 5, "nobody knows it")
    assert await asking[0] == Reply(5, b"", (), "nobody knows it")
    scene.triton.peer.abort()
    with pytest.raises(OutcomeUnknown):
        await asking[1]


@on_both_loops
async def test_an_answer_beyond_the_limit_is_given_up(scene: Scene) -> None:
    scene.triton.says = lambda request: bytes(2000)
    with pytest.raises(BodyTooLarge):
        await scene.question(limit=1999)
    assert len((await scene.question(limit=2000)).body) == 2000


@on_both_loops
async def test_a_question_whose_time_is_over_ends_and_the_answer_is_dropped(scene: Scene) -> None:
    scene.triton.answers = False
    with pytest.raises(DeadlineExceeded):
        await scene.question(seconds=0.05)
    scene.triton.answer(1)
    scene.triton.answers = True
    await scene.question()


@on_both_loops
async def test_a_replica_that_is_not_there_was_sent_no_question(scene: Scene) -> None:
    scene.triton.close()
    with pytest.raises(NotSent):
        await scene.question()
