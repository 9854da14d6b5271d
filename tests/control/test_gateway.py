"""The data plane as the control plane calls it: over real sockets, HTTP and gRPC."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from data_ports import FAULTS, RAW, SCORES, STATISTICS, Gateway, grpc_port, http_port
from ports import free_ports

from serve.control import gateway
from serve.core.errors import NotFound, OutcomeUnknown, ServegateError, Unavailable
from serve.tensors.codec import MalformedReply
from serve.tensors.metadata import TensorSpec, read_metadata

WAYS = pytest.mark.parametrize("via", ["http", "grpc"])
Use = Callable[[gateway.Gateway], Awaitable[Any]]


@pytest.fixture(scope="module")
def place() -> Iterator[gateway.Place]:
    with http_port() as url, grpc_port() as target:
        yield gateway.Place(url, target, f"{url}/metrics")


def play(place: gateway.Place, use: Use, key: str = "") -> Any:
    async def run() -> Any:
        called = gateway.Gateway(place, key=lambda: key, trust=None)
        try:
            async with asyncio.timeout(20):
                return await use(called)
        finally:
            await called.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("via", "version", "by", "generation"),
    [("http", "2", "label:stable", 7), ("grpc", "3", "number", 8)],
)
def test_an_answer_comes_with_the_decision_behind_it(
    place: gateway.Place, via: str, version: str, by: str, generation: int
) -> None:
    answer = play(place, lambda g: g.infer("m", "stable", RAW, via=via))
    assert np.array_equal(answer.outputs["y"], SCORES)
    assert (answer.version, answer.by, answer.generation) == (version, by, generation)
    assert answer.datatypes == {"y": "FP32"}
    assert answer.seconds > 0


def test_the_selector_and_the_key_are_sent(place: gateway.Place) -> None:
    play(place, lambda g: g.infer("m", "3", RAW), key="sg_x")
    path, headers, _ = Gateway.asked[-1]
    assert path == "/v2/models/m/versions/3/infer"
    assert headers["authorization"] == "Bearer sg_x"


@WAYS
@pytest.mark.parametrize("name", FAULTS)
def test_what_the_gateway_says_instead_is_raised_in_its_words(
    place: gateway.Place, name: str, via: str
) -> None:
    kind = FAULTS[name][1]
    with pytest.raises(ServegateError) as caught:
        play(place, lambda g: g.infer(name, "", RAW, via=via))
    assert type(caught.value) is kind
    if name != "s504":
        assert str(caught.value) == "it failed: for a reason. Try: something else"
        assert caught.value.code == "a_code"


@WAYS
def test_a_broken_answer_is_no_answer(place: gateway.Place, via: str) -> None:
    with pytest.raises(MalformedReply):
        play(place, lambda g: g.infer("broken", "", RAW, via=via))


@WAYS
def test_a_gateway_that_is_not_there_is_unavailable(via: str) -> None:
    http, grpc = free_ports(2)
    nowhere = gateway.Place(f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", "")
    with pytest.raises(Unavailable):
        play(nowhere, lambda g: g.infer("m", "", RAW, via=via))


def test_a_proxys_answer_is_an_unknown_outcome(place: gateway.Place) -> None:
    with pytest.raises(OutcomeUnknown) as caught:
        play(place, lambda g: g.infer("html", "", RAW))
    assert "proxy" in caught.value.what


def test_metadata_says_what_a_model_takes_and_gives(place: gateway.Place) -> None:
    found = play(place, lambda g: g.metadata("m", ""))
    assert found.inputs == {"x": TensorSpec("x", "FP32", (-1, 2))}
    assert list(found.outputs) == ["y"]
    with pytest.raises(NotFound):
        play(place, lambda g: g.metadata("other", ""))


@pytest.mark.parametrize("page", [{}, [], "html", {"inputs": [{}], "outputs": []}, None])
def test_what_is_no_metadata_is_refused(page: Any) -> None:
    with pytest.raises(ServegateError, match="the metadata of model 'm' cannot be read"):
        read_metadata(page, "m")


def test_statistics_are_of_one_version_or_none(place: gateway.Place) -> None:
    found = play(place, lambda g: g.statistics("m", 2))
    assert found["inference_stats"] == STATISTICS["inference_stats"]
    assert play(place, lambda g: g.statistics("other", 1)) is None


def test_metrics_are_text(place: gateway.Place) -> None:
    assert play(place, lambda g: g.metrics()) == "servegate_calls_total 3\n"


def test_connections_are_kept_and_opened_again_after_a_close(place: gateway.Place) -> None:
    async def use(called: gateway.Gateway) -> int:
        await called.metrics()
        await called.close()
        answers = [await called.infer("m", "", RAW, via=via) for via in ("http", "grpc", "http")]
        return len(answers)

    assert play(place, use) == 3
