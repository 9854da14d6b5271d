"""Streams of NVIDIA's gRPC client, unchanged, with ordinary and with decoupled models."""

import queue
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc as rpc
import numpy as np
import pytest
import tritonclient.grpc as grpc

from serve.tensors import codec

from .conftest import Beside
from .grpc_clients import CANCELLED, PATIENCE, TOO_LATE, read, same, through, x

pytestmark = pytest.mark.triton


class Stream:
    """A client's stream, and what came on it: answers as `read` reads them, and errors."""

    def __init__(self, client: grpc.InferenceServerClient, **options: Any) -> None:
        self._came: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: self._came.put((result, error)), **options)

    def next(self) -> dict[str, Any] | tuple[str | None, str]:
        result, error = self._came.get(timeout=PATIENCE)
        return read(result) if error is None else (error.status(), error.message())


def test_a_stream_answers_each_of_its_requests(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> list[Any]:
        stream = Stream(client)
        for number in range(20):
            client.async_stream_infer("told", x(number), request_id=str(number))
        return sorted((stream.next() for _ in range(20)), key=lambda answer: int(answer["id"]))

    assert len(same(beside, act)) == 20


def test_a_decoupled_model_answers_as_often_as_it_is_told(beside: Beside) -> None:
    """Its end repeats the version that was asked for: none, or the one that the gateway chose."""

    def act(client: grpc.InferenceServerClient) -> list[Any]:
        stream = Stream(client)
        client.async_stream_infer(
            "repeat", x(5, 1), request_id="five", enable_empty_final_response=True
        )
        *answers, last = (stream.next() for _ in range(6))
        assert isinstance(last, dict)
        last.pop("modelVersion", None)
        return [*answers, last]

    *answers, last = same(beside, act)
    assert [answer["outputs"][0]["values"][2] for answer in answers] == [
        [5.0 + number, 1.0 + number] for number in range(5)
    ]
    assert last["parameters"]["triton_final_response"] == {"boolParam": True}
    assert "outputs" not in last


def test_a_stream_goes_on_after_an_error_of_one_request(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> list[Any]:
        stream, said = Stream(client), []
        for model, inputs in (("nothing", x(1)), ("told", x(-1)), ("told", []), ("told", x(1))):
            client.async_stream_infer(model, inputs, request_id="r")
            said.append(stream.next())
        return said

    *errors, good = same(beside, act)
    assert all(isinstance(error, tuple) for error in errors)
    assert good["id"] == "r"


def test_a_stream_that_is_stopped_still_gets_the_answers_that_it_is_owed(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> list[Any]:
        stream = Stream(client)
        for number in range(3):
            client.async_stream_infer("slow", x(0.05), request_id=str(number))
        client.stop_stream()
        return sorted((stream.next() for _ in range(3)), key=lambda answer: int(answer["id"]))

    same(beside, act)


def test_a_stream_that_is_cancelled_ends_with_the_client_s_own_error(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> Any:
        stream = Stream(client)
        client.async_stream_infer("slow", x(0.3))
        client.stop_stream(cancel_requests=True)
        return stream.next()

    assert through(beside, act) == CANCELLED


def test_a_stream_that_takes_longer_than_its_timeout_ends_with_it(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> Any:
        stream = Stream(client, stream_timeout=0.2)
        client.async_stream_infer("slow", x(0.5))
        return stream.next()

    # Whichever looks at its clock first: the client, or the gateway.
    assert through(beside, act) in (TOO_LATE, (TOO_LATE[0], "the call's deadline has passed"))


def test_many_busy_streams_on_one_connection_are_no_flood_of_control_frames(beside: Beside) -> None:
    """gRPC's C core answers a message with two WINDOW_UPDATEs of its stream and one of all."""
    streams, messages = 32, 250
    body = codec.grpc_request("told", {"x": np.array([1.0], np.float32)})
    method = "/inference.GRPCInferenceService/ModelStreamInfer"

    def converse(channel: Any) -> int:
        asked: queue.Queue[bytes | None] = queue.Queue()
        asked.put(body)
        answers = channel.stream_stream(method)(iter(asked.get, None))
        for number in range(messages):
            assert next(answers)
            asked.put(body if number < messages - 1 else None)
        return sum(1 for _ in answers)

    with rpc.insecure_channel(beside.front.grpc) as channel, ThreadPoolExecutor(streams) as many:
        assert list(many.map(converse, [channel] * streams)) == [0] * streams
