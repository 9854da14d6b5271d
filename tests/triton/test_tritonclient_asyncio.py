"""NVIDIA's asyncio clients, unchanged: many calls at once, and calls that are given up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any, TypeVar

import pytest
import tritonclient.grpc.aio as grpc
import tritonclient.http.aio as http
from tritonclient.utils import InferenceServerException

from .clients import read, x
from .conftest import Beside

pytestmark = [pytest.mark.triton, pytest.mark.slow]

T = TypeVar("T")
PATIENCE = 30.0  # seconds; a bound
TOO_LATE = "StatusCode.DEADLINE_EXCEEDED"
BOTH = pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])


async def ask(module: ModuleType, address: str, act: Callable[[Any], Awaitable[T]]) -> T:
    """Do this with a client of this address."""
    async with asyncio.timeout(PATIENCE), module.InferenceServerClient(address) as client:
        return await act(client)


def same(beside: Beside, module: ModuleType, act: Callable[[Any], Awaitable[T]]) -> T:
    """The result of this through the gateway; it has to be the result without it."""
    addresses = beside.http if module is http else beside.grpc
    directly, through = (asyncio.run(ask(module, address, act)) for address in addresses)
    assert through == directly
    return through


def through(beside: Beside, module: ModuleType, act: Callable[[Any], Awaitable[T]]) -> T:
    """The result through the gateway alone: Triton 2.51 may crash when its callers leave."""
    address = beside.front.http if module is http else beside.front.grpc
    said = asyncio.run(ask(module, address, act))
    beside.front.wait_idle()
    return said


async def refused(asked: Awaitable[object]) -> tuple[str | None, str]:
    """Status and message of the client's exception."""
    with pytest.raises(InferenceServerException) as caught:
        await asked
    return caught.value.status(), caught.value.message()


@BOTH
def test_calls_that_are_made_at_once_all_get_their_own_answer(
    beside: Beside, module: ModuleType
) -> None:
    async def act(client: Any) -> list[dict[str, Any]]:
        calls = (
            client.infer("told", x(module, n), request_id=str(n), parameters={"n": n})
            for n in range(100)
        )
        return [read(answer) for answer in await asyncio.gather(*calls)]

    answers = same(beside, module, act)
    assert [answer["id"] for answer in answers] == [str(n) for n in range(100)]


@BOTH
def test_a_task_that_is_cancelled_leaves_no_call_behind(beside: Beside, module: ModuleType) -> None:
    async def act(client: Any) -> bool:
        slow = asyncio.create_task(client.infer("slow", x(module, 0.3)))
        await client.infer("told", x(module, 1))  # by then the slow one has been sent, too
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        return read(await client.infer("told", x(module, 1), request_id="2"))["id"] == "2"

    assert through(beside, module, act)


def test_a_call_that_takes_longer_than_its_time_ends_with_it(beside: Beside) -> None:
    async def over_grpc(client: Any) -> list[Any]:
        late = await refused(client.infer("slow", x(grpc, 0.4), client_timeout=0.1))
        return [late[0], read(await client.infer("told", x(grpc, 1)))["model_name"]]

    async def over_http(address: str) -> None:
        async with http.InferenceServerClient(address, conn_timeout=0.1) as client:
            with pytest.raises(TimeoutError):
                await client.infer("slow", x(http, 0.4))

    assert through(beside, grpc, over_grpc) == [TOO_LATE, "told"]
    asyncio.run(over_http(beside.front.http))
    beside.front.wait_idle()


def test_a_stream_carries_requests_and_all_their_answers(beside: Beside) -> None:
    async def asked() -> AsyncIterator[dict[str, Any]]:
        for number in range(5):
            given = {"inputs": x(grpc, number, 7), "request_id": str(number)}
            yield {"model_name": "repeat", "model_version": "1", **given}

    async def act(client: Any) -> list[Any]:
        said = [read(result) async for result, error in client.stream_infer(asked()) if not error]
        return sorted(said, key=str)

    assert len(same(beside, grpc, act)) == 0 + 1 + 2 + 3 + 4


def test_a_stream_that_is_cancelled_ends_and_leaves_nothing_behind(beside: Beside) -> None:
    async def asked() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "told", "inputs": x(grpc, 1)}
        yield {"model_name": "slow", "inputs": x(grpc, 0.3)}
        await asyncio.Event().wait()

    async def act(client: Any) -> bool:
        stream = client.stream_infer(asked())
        result, error = await anext(stream)
        assert error is None and read(result)["model_name"] == "told"
        assert stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
        return True

    assert through(beside, grpc, act)
