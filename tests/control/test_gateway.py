"""The data plane as the control plane calls it: over real sockets, HTTP and gRPC."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from data_ports import FAULTS, RAW, SCORES, STATISTICS, Gateway, grpc_port, http_port
from ports import free_ports
from refusals import refusal

from serve.control import gateway
from serve.core.errors import NotFound, OutcomeUnknown, ServegateError, Unavailable
from serve.tensors.codec import MalformedReply
from serve.tensors.metadata import TensorSpec, read_metadata

WAYS = ("http", "grpc")


@pytest.fixture(scope="module")
def place() -> Iterator[gateway.GatewayAddress]:
    with http_port() as url, grpc_port() as target:
        yield gateway.GatewayAddress(url, target, f"{url}/metrics")


@pytest.fixture
async def called(place: gateway.GatewayAddress) -> AsyncIterator[gateway.GatewayClient]:
    one = gateway.GatewayClient(place, key=lambda: "sg_x", trust=None)
    async with asyncio.timeout(20):
        yield one
        await one.close()


@pytest.mark.parametrize(
    ("via", "version", "by", "generation"),
    [("http", "2", "label:stable", 7), ("grpc", "3", "number", 8)],
)
async def test_an_answer_comes_with_the_decision_behind_it(
    called: gateway.GatewayClient, via: str, version: str, by: str, generation: int
) -> None:
    answer = await called.infer("m", "stable", RAW, via=via)
    assert np.array_equal(answer.outputs["y"], SCORES)
    assert (answer.version, answer.by, answer.generation) == (version, by, generation)
    assert answer.datatypes == {"y": "FP32"}
    assert answer.seconds > 0
    await called.infer("m", "3", RAW)
    path, headers, _ = Gateway.asked[-1]
    assert path == "/v2/models/m/versions/3/infer"
    assert headers["authorization"] == "Bearer sg_x"


@pytest.mark.parametrize("via", WAYS)
async def test_what_the_gateway_says_instead_is_raised_in_its_words(
    called: gateway.GatewayClient, via: str
) -> None:
    for name, (_, kind, *_) in FAULTS.items():
        with pytest.raises(ServegateError) as caught:
            await called.infer(name, "", RAW, via=via)
        assert type(caught.value) is kind, name
        if name != "s504":
            assert str(caught.value) == "it failed: for a reason. Try: something else", name
            assert caught.value.code == "a_code", name
    with pytest.raises(MalformedReply):  # a broken answer is no answer
        await called.infer("broken", "", RAW, via=via)
    with pytest.raises(OutcomeUnknown, match="proxy"):
        await called.infer("html", "", RAW)


async def test_a_gateway_that_is_not_there_is_unavailable() -> None:
    http, grpc = free_ports(2)
    nowhere = gateway.GatewayAddress(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", "")
    called = gateway.GatewayClient(nowhere, key=lambda: "", trust=None)
    for via in WAYS:
        with pytest.raises(Unavailable):
            await called.infer("m", "", RAW, via=via)
    await called.close()


async def test_metadata_and_statistics_are_of_one_model_or_none(
    called: gateway.GatewayClient,
) -> None:
    found = await called.metadata("m", "")
    assert found.inputs == {"x": TensorSpec("x", "FP32", (-1, 2))}
    assert list(found.outputs) == ["y"]
    with pytest.raises(NotFound):
        await called.metadata("other", "")
    statistics = await called.statistics("m", 2)
    assert statistics is not None
    assert statistics["inference_stats"] == STATISTICS["inference_stats"]
    assert await called.statistics("other", 1) is None


def test_what_is_no_metadata_is_refused() -> None:
    for page in ({}, [], "html", {"inputs": [{}], "outputs": []}, None):
        error = refusal(ServegateError, read_metadata, page, "m")
        assert "the metadata of model 'm' cannot be read" in str(error)


async def test_metrics_are_text_and_connections_are_opened_again_after_a_close(
    called: gateway.GatewayClient,
) -> None:
    assert await called.metrics() == "servegate_calls_total 3\n"
    await called.close()
    for via in ("http", "grpc", "http"):
        assert (await called.infer("m", "", RAW, via=via)).version
