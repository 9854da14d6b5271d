"""Questions to one replica over the pool's connections, in front of a Triton in frames."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from builders import Clock, until
from grpc_wire import BOUND, LIMITS, LOOPS, STREAM, Triton

from serve.core.calls import Reply
from serve.core.errors import BodyTooLarge, DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_question import ask

T = TypeVar("T")


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Question = Callable[..., Awaitable[Reply]]


def play(scenario: Callable[[Triton, Question], Awaitable[T]], loop: str) -> T:
    """Act a scenario out; nothing is left of it then."""

    async def act() -> T:
        triton, pool = Triton(), GrpcPool(limits=LIMITS, connect_timeout=5.0, clock=Clock())
        await triton.start()
        replica = Replica("a", "127.0.0.1", 1, triton.port, 1)

        async def question(
            body: bytes = b"", *, seconds: float = BOUND, limit: int = 1 << 20
        ) -> Reply:
            return await ask(pool, replica, STREAM, body, seconds=seconds, limit=limit)

        try:
            async with asyncio.timeout(BOUND):
                told = await scenario(triton, question)
                await until(lambda: pool.streams == pool.board.held == 0)
                return told
        finally:
            pool.close()
            triton.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(act())


@pytest.mark.parametrize("size", [0, 10, 200_000])
def test_a_question_has_one_whole_answer(loop: str, size: int) -> None:
    async def scenario(triton: Triton, question: Question) -> list[Reply]:
        triton.says = lambda request: request * size
        return [await question(b"x") for _ in range(2)]

    assert play(scenario, loop) == [Reply(0, b"x" * size)] * 2


def test_a_status_comes_with_its_message(loop: str) -> None:
    async def scenario(triton: Triton, question: Question) -> Reply:
        triton.answers = False
        asking = asyncio.ensure_future(question())
        await until(lambda: bool(triton.calls) and triton.calls[0].ended)
        triton.refuse(1, 5, "nobody knows it")
        return await asking

    assert play(scenario, loop) == Reply(5, b"", (), "nobody knows it")


def test_an_answer_beyond_the_limit_is_given_up(loop: str) -> None:
    async def scenario(triton: Triton, question: Question) -> None:
        triton.says = lambda request: bytes(2000)
        with pytest.raises(BodyTooLarge):
            await question(limit=1999)
        assert len((await question(limit=2000)).body) == 2000

    play(scenario, loop)


def test_who_has_waited_long_enough_leaves_and_the_answer_is_dropped(loop: str) -> None:
    async def scenario(triton: Triton, question: Question) -> None:
        triton.answers = False
        with pytest.raises(DeadlineExceeded):
            await question(seconds=0.05)
        triton.answer(1)
        triton.answers = True
        await question()

    play(scenario, loop)


def test_a_connection_that_breaks_leaves_the_outcome_unknown(loop: str) -> None:
    async def scenario(triton: Triton, question: Question) -> None:
        triton.answers = False
        asking = asyncio.ensure_future(question())
        await until(lambda: bool(triton.calls) and triton.calls[0].ended)
        triton.peer.abort()
        with pytest.raises(OutcomeUnknown):
            await asking

    play(scenario, loop)


def test_a_replica_that_is_not_there_was_sent_nothing(loop: str) -> None:
    async def scenario(triton: Triton, question: Question) -> None:
        triton.close()
        with pytest.raises(NotSent):
            await question()

    play(scenario, loop)
