"""Questions to one replica over the pool's connections, in front of a Triton in frames."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from builders import Clock, until
from grpc_wire import BOUND, LIMITS, LOOPS, STREAM, Triton

from serve.core.calls import Reply
from serve.core.errors import BodyTooLarge, DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_question import ask

Question = Callable[..., Awaitable[Reply]]


def on_both_loops(scenario: Callable[[Triton, Question], Awaitable[None]]) -> Callable[..., None]:
    """Act a scenario out on each loop; nothing is left of it then."""

    async def act() -> None:
        triton, pool = Triton(), GrpcPool(limits=LIMITS, connect_timeout=5.0, clock=Clock())
        await triton.start()
        replica = Replica("a", "127.0.0.1", 1, triton.port, 1)

        async def question(
            body: bytes = b"", *, seconds: float = BOUND, limit: int = 1 << 20
        ) -> Reply:
            return await ask(pool, replica, STREAM, body, seconds=seconds, limit=limit)

        try:
            async with asyncio.timeout(BOUND):
                await scenario(triton, question)
                await until(lambda: pool.streams == pool.board.held == 0)
        finally:
            pool.close()
            triton.close()

    @pytest.mark.parametrize("loop", LOOPS)
    def on_one_loop(loop: str) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(act())

    return on_one_loop


@on_both_loops
async def test_a_question_has_one_whole_answer(triton: Triton, question: Question) -> None:
    for size in (0, 10, 200_000):
        triton.says = lambda request, size=size: request * size
        for _ in range(2):
            assert await question(b"x") == Reply(0, b"x" * size)


@on_both_loops
async def test_a_status_comes_with_its_message(triton: Triton, question: Question) -> None:
    triton.answers = False
    asking = asyncio.ensure_future(question())
    await until(lambda: bool(triton.calls) and triton.calls[0].ended)
    triton.refuse(1, 5, "nobody knows it")
    assert await asking == Reply(5, b"", (), "nobody knows it")


@on_both_loops
async def test_an_answer_beyond_the_limit_is_given_up(triton: Triton, question: Question) -> None:
    triton.says = lambda request: bytes(2000)
    with pytest.raises(BodyTooLarge):
        await question(limit=1999)
    assert len((await question(limit=2000)).body) == 2000


@on_both_loops
async def test_a_question_whose_time_is_over_ends_and_the_answer_is_dropped(
    triton: Triton, question: Question
) -> None:
    triton.answers = False
    with pytest.raises(DeadlineExceeded):
        await question(seconds=0.05)
    triton.answer(1)
    triton.answers = True
    await question()


@on_both_loops
async def test_a_connection_that_breaks_leaves_the_outcome_unknown(
    triton: Triton, question: Question
) -> None:
    triton.answers = False
    asking = asyncio.ensure_future(question())
    await until(lambda: bool(triton.calls) and triton.calls[0].ended)
    triton.peer.abort()
    with pytest.raises(OutcomeUnknown):
        await asking


@on_both_loops
async def test_a_replica_that_is_not_there_was_sent_nothing(
    triton: Triton, question: Question
) -> None:
    triton.close()
    with pytest.raises(NotSent):
        await question()
