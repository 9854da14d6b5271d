"""NVIDIA's clients with an API key: a header, or their own plugin, is all that a program adds."""

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http
import tritonclient.http.aio as http_aio
from tritonclient.grpc import InferenceServerClientPlugin
from tritonclient.utils import InferenceServerException

from serve.core.access import Key, Role

from .client_models import MODELS
from .conftest import Beside
from .fronting import Front, front

pytestmark = pytest.mark.triton

PATIENCE = 20.0  # seconds; a bound
BOTH = pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
UNKNOWN = "Request for unknown model: 'mirror' is not found"
STATUSES = {http: ("401", "404"), grpc: ("StatusCode.UNAUTHENTICATED", "StatusCode.NOT_FOUND")}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A gateway that asks for keys, and the words of one that names the model `told` alone."""

    front: Front
    words: str

    def address(self, module: ModuleType) -> str:
        return self.front.http if module in (http, http_aio) else self.front.grpc

    @property
    def header(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.words}"}


class Bearer(InferenceServerClientPlugin):  # type: ignore[misc]
    """What the clients' documentation tells their users to write."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __call__(self, request: Any) -> None:
        request.headers["authorization"] = f"Bearer {self._words}"


@pytest.fixture(scope="module")
def guarded(beside: Beside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    key, words = Key.create(Role.PREDICTOR, ("told",))
    state = tmp_path_factory.mktemp("guarded")
    with front(state, [beside.triton], MODELS, keys=(key,)) as running:
        yield Guarded(running, words)


def x(module: ModuleType) -> list[Any]:
    made = module.InferInput("x", [1], "FP32")
    made.set_data_from_numpy(np.array([1], np.float32))
    return [made]


@BOTH
def test_without_a_key_nobody_is_served_but_health_is_told(
    guarded: Guarded, module: ModuleType
) -> None:
    with module.InferenceServerClient(guarded.address(module)) as client:
        assert client.is_server_live() and client.is_server_ready()
        for act in (
            lambda: client.infer("told", x(module)),
            lambda: client.infer("nothing", x(module)),
            lambda: client.get_model_metadata("told"),
            lambda: client.get_model_repository_index(),
            lambda: client.get_inference_statistics(),
        ):
            with pytest.raises(InferenceServerException, match="a valid API key") as caught:
                act()
            assert caught.value.status() == STATUSES[module][0]


@BOTH
def test_a_key_opens_its_models_and_no_others_exist(guarded: Guarded, module: ModuleType) -> None:
    with module.InferenceServerClient(guarded.address(module)) as client:
        assert client.infer("told", x(module), headers=guarded.header).as_numpy("told") is not None
        assert client.is_model_ready("told", headers=guarded.header)
        assert not client.is_model_ready("mirror", headers=guarded.header)
        with pytest.raises(InferenceServerException) as caught:
            client.infer("mirror", x(module), headers=guarded.header)
        assert caught.value.status() == STATUSES[module][1]
        assert caught.value.message() == UNKNOWN
        index = client.get_model_repository_index(headers=guarded.header)
        assert "told" in str(index) and "mirror" not in str(index)


@BOTH
def test_a_plugin_brings_the_key_with_every_call(guarded: Guarded, module: ModuleType) -> None:
    with module.InferenceServerClient(guarded.address(module)) as client:
        client.register_plugin(Bearer(guarded.words))
        for number in range(3):
            answer = client.infer("told", x(module), request_id=str(number))
            assert answer.as_numpy("told") is not None
        assert client.get_server_metadata()


@pytest.mark.parametrize("module", [http_aio, grpc_aio], ids=["http", "grpc"])
def test_asyncio_clients_bring_the_key_too(guarded: Guarded, module: ModuleType) -> None:
    async def act() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            module.InferenceServerClient(guarded.address(module)) as client,
        ):
            with pytest.raises(InferenceServerException, match="a valid API key"):
                await client.infer("told", x(module))
            answer = await client.infer("told", x(module), headers=guarded.header)
            assert answer.as_numpy("told") is not None

    asyncio.run(act())


def test_a_stream_brings_the_key_once(guarded: Guarded) -> None:
    came: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpc.InferenceServerClient(guarded.front.grpc) as client:
        client.start_stream(lambda result, error: came.put((result, error)), headers=guarded.header)
        for model in ("told", "mirror", "told"):
            client.async_stream_infer(model, x(grpc))
        said = [came.get(timeout=PATIENCE) for _ in range(3)]
    errors = [error.message() for _, error in said if error is not None]
    assert errors == [UNKNOWN]


def test_a_stream_without_a_key_is_not_served(guarded: Guarded) -> None:
    async def asked() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "told", "inputs": x(grpc)}

    async def act() -> list[Any]:
        async with (
            asyncio.timeout(PATIENCE),
            grpc_aio.InferenceServerClient(guarded.front.grpc) as client,
        ):
            return [(result, str(error)) async for result, error in client.stream_infer(asked())]

    try:
        said = asyncio.run(act())
    except Exception as error:  # the client passes on what ends a stream as it is
        said = [(None, str(error))]
    assert [result for result, _ in said] == [None]
    assert "a valid API key" in said[0][1]
