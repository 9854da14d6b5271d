"""NVIDIA's asyncio clients, unchanged, on both protocols."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import pytest
import tritonclient.grpc.aio as grpc
import tritonclient.http.aio as http
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tritonclient.utils import InferenceServerException

from .client_models import VALUES
from .conftest import Beside

pytestmark = [pytest.mark.triton, pytest.mark.slow]

T = TypeVar("T")
PATIENCE = 30.0  # seconds; a bound
CANCELLED = "StatusCode.CANCELLED"
TOO_LATE = "StatusCode.DEADLINE_EXCEEDED"
BOTH = pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])


async def ask(module: ModuleType, address: str, act: Callable[[Any], Awaitable[T]]) -> T:
    """Do this with a client of this address."""
    async with asyncio.timeout(PATIENCE), module.InferenceServerClient(address) as client:
        return await act(client)


def same(beside: Beside, module: ModuleType, act: Callable[[Any], Awaitable[T]]) -> T:
    """What this does through the gateway; it has to be what it does without."""
    addresses = beside.http if module is http else beside.grpc
    directly, through = (asyncio.run(ask(module, address, act)) for address in addresses)
    assert through == directly
    return through


def through(beside: Beside, module: ModuleType, act: Callable[[Any], Awaitable[T]]) -> T:
    """What this does through the gateway alone: Triton 2.51 may crash when its callers leave."""
    address = beside.front.http if module is http else beside.front.grpc
    said = asyncio.run(ask(module, address, act))
    beside.front.wait_idle()
    return said


def tensor(module: ModuleType, name: str, values: np.ndarray[Any, Any]) -> Any:
    made = module.InferInput(name, list(values.shape), "FP32" if name == "x" else name)
    made.set_data_from_numpy(values)
    return made


def x(module: ModuleType, *values: float) -> list[Any]:
    return [tensor(module, "x", np.array(values, np.float32))]


def read(answer: Any) -> dict[str, Any]:
    """Everything that an answer holds, in values that can be compared."""
    head = plain(answer.get_response())
    for output in head.get("outputs", ()):
        values = answer.as_numpy(output["name"])
        output["values"] = (values.dtype.name, values.shape, values.tolist())
    return dict(head)


def plain(said: Any) -> Any:
    return MessageToDict(said) if isinstance(said, Message) else said


async def refused(asked: Awaitable[object]) -> tuple[str | None, str]:
    """Status and message of the client's exception."""
    with pytest.raises(InferenceServerException) as caught:
        await asked
    return caught.value.status(), caught.value.message()


@BOTH
def test_tensors_of_every_datatype_come_back_unchanged(beside: Beside, module: ModuleType) -> None:
    async def act(client: Any) -> dict[str, Any]:
        asked = [tensor(module, kind, values) for kind, values in VALUES.items()]
        return read(await client.infer("mirror", asked))

    answer = same(beside, module, act)
    for output in answer["outputs"]:
        assert output["values"][2] == VALUES[output["name"].removeprefix("out_")].tolist()


@BOTH
def test_an_input_and_an_output_may_share_their_name(beside: Beside, module: ModuleType) -> None:
    async def act(client: Any) -> list[dict[str, Any]]:
        wanted = [module.InferRequestedOutput("x")]
        return [
            read(await client.infer("shared", x(module, 1, 2), outputs=outputs))
            for outputs in (None, wanted)
        ]

    for answer in same(beside, module, act):
        assert [(one["name"], one["values"][2]) for one in answer["outputs"]] == [("x", [1.0, 2.0])]


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


def test_bodies_may_be_compressed_both_ways(beside: Beside) -> None:
    async def act(client: Any) -> list[dict[str, Any]]:
        asked = [tensor(http, "FP32", np.arange(5000, dtype=np.float32))]
        return [
            read(
                await client.infer(
                    "mirror",
                    asked,
                    request_compression_algorithm=request,
                    response_compression_algorithm=response,
                )
            )
            for request in ("gzip", "deflate", None)
            for response in ("gzip", "deflate", None)
        ]

    same(beside, http, act)


@BOTH
def test_the_server_describes_itself_and_its_models(beside: Beside, module: ModuleType) -> None:
    async def act(client: Any) -> list[Any]:
        said = [
            await client.is_server_live(),
            await client.is_server_ready(),
            await client.get_server_metadata(),
            await client.get_model_metadata("told"),
            await client.get_model_config("mirror"),
            await client.is_model_ready("told", "2"),
            await client.is_model_ready("nothing"),
        ]
        return [plain(one) for one in said]

    assert same(beside, module, act)[5:] == [True, False]


@BOTH
def test_the_repository_index_and_the_statistics_name_what_is_served(
    beside: Beside, module: ModuleType
) -> None:
    async def act(client: Any) -> tuple[list[Any], set[Any]]:
        index = plain(await client.get_model_repository_index())
        statistics = plain(await client.get_inference_statistics())
        models = index["models"] if module is grpc else index
        counted = statistics["modelStats" if module is grpc else "model_stats"]
        return sorted(models, key=str), {(one["name"], one["version"]) for one in counted}

    _, counted = same(beside, module, act)
    assert ("told", "1") in counted and ("told", "2") in counted


@BOTH
def test_errors_have_the_status_and_the_words_of_triton(beside: Beside, module: ModuleType) -> None:
    async def act(client: Any) -> list[Any]:
        return [
            await refused(client.infer("nothing", x(module, 1))),
            await refused(client.infer("told", x(module, 1), model_version="9")),
            await refused(client.infer("told", x(module, -1), request_id="mine")),
            await refused(client.infer("repeat", x(module, 1))),
            await refused(client.get_model_metadata("nothing")),
            await refused(client.get_model_config("nothing")),
        ]

    same(beside, module, act)


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


def test_a_call_that_takes_longer_than_its_timeout_ends_with_it(beside: Beside) -> None:
    async def act(client: Any) -> list[Any]:
        late = await refused(client.infer("slow", x(grpc, 0.4), client_timeout=0.1))
        return [late[0], read(await client.infer("told", x(grpc, 1)))["modelName"]]

    assert through(beside, grpc, act) == [TOO_LATE, "told"]


def test_a_client_s_total_time_of_http_ends_the_call(beside: Beside) -> None:
    async def act(address: str) -> None:
        async with http.InferenceServerClient(address, conn_timeout=0.1) as client:
            with pytest.raises(TimeoutError):
                await client.infer("slow", x(http, 0.4))

    asyncio.run(act(beside.front.http))
    beside.front.wait_idle()


def test_a_stream_carries_requests_and_all_their_answers(beside: Beside) -> None:
    async def asked() -> AsyncIterator[dict[str, Any]]:
        for number in range(5):
            yield {
                "model_name": "repeat",
                "inputs": x(grpc, number, 7),
                "request_id": str(number),
                "model_version": "1",
            }

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
        assert error is None and read(result)["modelName"] == "told"
        assert stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
        return True

    assert through(beside, grpc, act)
