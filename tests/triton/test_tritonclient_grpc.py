"""NVIDIA's gRPC client, unchanged: through the gateway it gets what it gets from Triton."""

import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc
from harness import until
from tritonclient.utils import InferenceServerException

from .client_models import MODELS, VALUES
from .conftest import Beside
from .grpc_clients import CANCELLED, PATIENCE, TOO_LATE, read, refused, same, tensor, through, x

pytestmark = pytest.mark.triton


@pytest.mark.parametrize("kind", VALUES)
def test_tensors_of_every_datatype_come_back_unchanged(beside: Beside, kind: str) -> None:
    answer = same(beside, lambda client: read(client.infer("mirror", [tensor(kind, VALUES[kind])])))
    assert answer["outputs"][0]["values"][2] == VALUES[kind].tolist()


def test_several_inputs_are_answered_with_the_outputs_that_were_requested(beside: Beside) -> None:
    asked = [tensor(kind, VALUES[kind]) for kind in ("FP32", "INT8", "BYTES")]

    def act(client: grpc.InferenceServerClient) -> list[dict[str, Any]]:
        some = [grpc.InferRequestedOutput(f"out_{kind}") for kind in ("BYTES", "INT8")]
        return [read(client.infer("mirror", asked, outputs=wanted)) for wanted in (None, some)]

    every, some = same(beside, act)
    assert [len(answer["outputs"]) for answer in (every, some)] == [3, 2]


@pytest.mark.parametrize("version", ["", "1", "2"])
def test_the_version_that_is_asked_for_answers(beside: Beside, version: str) -> None:
    answer = same(beside, lambda client: read(client.infer("told", x(1), model_version=version)))
    assert answer["modelVersion"] == (version or "2")


def test_request_id_and_parameters_reach_the_model_and_the_id_comes_back(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> dict[str, Any]:
        more = {"word": "é", "number": 7, "yes": True}
        return read(client.infer("told", x(1), request_id="my-id", parameters=more))

    answer = same(beside, act)
    assert answer["id"] == "my-id"
    assert b'"my-id"' in answer["outputs"][0]["values"][2][0]


def test_priority_timeout_and_sequence_are_accepted_by_a_model_without_them(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> list[dict[str, Any]]:
        return [
            read(client.infer("told", x(1), priority=1, timeout=1_000_000)),
            read(client.infer("told", x(1), sequence_id=7, sequence_start=True)),
            read(client.infer("told", x(1), sequence_id="seven", sequence_end=True)),
        ]

    same(beside, act)


@pytest.mark.parametrize("count", [1, 2])
def test_classes_come_back_with_their_labels(beside: Beside, count: int) -> None:
    values = np.array([0.25, 0.75, 0.5], np.float32)

    def act(client: grpc.InferenceServerClient) -> dict[str, Any]:
        wanted = [grpc.InferRequestedOutput("out_FP32", class_count=count)]
        return read(client.infer("mirror", [tensor("FP32", values)], outputs=wanted))

    answer = same(beside, act)
    assert answer["outputs"][0]["values"][2] == [b"0.750000:1:one", b"0.500000:2:two"][:count]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_messages_may_be_compressed(beside: Beside, algorithm: str) -> None:
    asked = [tensor("FP32", np.arange(5000, dtype=np.float32))]
    same(beside, lambda one: read(one.infer("mirror", asked, compression_algorithm=algorithm)))


def test_calls_that_are_made_at_once_all_get_their_own_answer(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> dict[str, Any]:
        came: queue.Queue[tuple[Any, Any]] = queue.Queue()
        for number in range(40):
            client.async_infer(
                "told",
                x(number),
                request_id=str(number),
                callback=lambda result, error: came.put((result, error)),
            )
        answers = [came.get(timeout=PATIENCE) for _ in range(40)]
        assert not any(error for _, error in answers)
        return {read(result)["id"]: read(result) for result, _ in answers}

    assert same(beside, act).keys() == {str(number) for number in range(40)}


def test_the_server_describes_itself_and_its_models(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> list[Any]:
        return [
            client.is_server_live(),
            client.is_server_ready(),
            client.get_server_metadata(as_json=True),
            client.get_model_metadata("told", as_json=True),
            client.get_model_metadata("told", "1", as_json=True),
            client.get_model_config("mirror", as_json=True),
            client.get_model_config("told", "2", as_json=True),
            client.is_model_ready("told"),
            client.is_model_ready("told", "1"),
            client.is_model_ready("told", "9"),
            client.is_model_ready("nothing"),
        ]

    assert same(beside, act)[7:] == [True, True, False, False]


def test_the_repository_index_names_what_is_served(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> list[tuple[str, ...]]:
        index = client.get_model_repository_index()
        return sorted((one.name, one.version, one.state) for one in index.models)

    assert ("told", "2", "READY") in same(beside, act)


def test_statistics_count_what_was_called(beside: Beside) -> None:
    """Triton counts a call a moment after it has answered."""

    def counts(client: grpc.InferenceServerClient) -> dict[str, int]:
        told = client.get_inference_statistics("told").model_stats
        return {one.version: one.inference_stats.success.count for one in told}

    with grpc.InferenceServerClient(beside.front.grpc) as client:
        before = counts(client)
        for version in ("1", "2", "2"):
            client.infer("told", x(1), model_version=version)
        until(lambda: sum(counts(client).values()) == sum(before.values()) + 3)
        after = counts(client)
        everything = client.get_inference_statistics().model_stats
    assert {version: after[version] - before[version] for version in after} == {"1": 1, "2": 2}
    assert {one.name for one in everything} == {model.name for model in MODELS}
    same(beside, lambda client: client.get_inference_statistics("told", "1", as_json=True))


@pytest.mark.parametrize(
    "act",
    [
        lambda client: client.infer("nothing", x(1)),
        lambda client: client.infer("told", x(1), model_version="9"),
        lambda client: client.infer("told", []),
        lambda client: client.infer("told", x(-1)),
        lambda client: client.infer("told", x(-1), request_id="mine"),
        lambda client: client.infer("mirror", [tensor("FP64", VALUES["FP64"].reshape(3, 1))]),
        lambda client: client.infer("repeat", x(1)),
        lambda client: client.infer(
            "told", x(1), outputs=[grpc.InferRequestedOutput("no_such_output")]
        ),
        lambda client: client.infer("told", x(1), parameters={"triton_mine": 1}),
        lambda client: client.get_model_metadata("nothing"),
        lambda client: client.get_model_metadata("told", "9"),
        lambda client: client.get_model_config("nothing"),
        lambda client: client.get_inference_statistics("nothing"),
        lambda client: client.get_inference_statistics("told", "9"),
    ],
)
def test_errors_have_the_status_and_the_words_of_triton(
    beside: Beside, act: Callable[[grpc.InferenceServerClient], object]
) -> None:
    same(beside, lambda client: refused(lambda: act(client)))


def test_a_call_that_is_cancelled_ends_at_once_and_leaves_nothing_behind(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> tuple[str | None, str]:
        came: queue.Queue[InferenceServerException] = queue.Queue()
        call = client.async_infer("slow", x(0.3), callback=lambda result, error: came.put(error))
        call.cancel()
        error = came.get(timeout=PATIENCE)
        return error.status(), error.message()

    assert through(beside, act) == CANCELLED


def test_a_call_that_takes_longer_than_its_timeout_ends_with_it(beside: Beside) -> None:
    def act(client: grpc.InferenceServerClient) -> list[Any]:
        return [
            refused(lambda: client.infer("slow", x(0.5), client_timeout=0.2)),
            read(client.infer("slow", x(0), client_timeout=PATIENCE)),
        ]

    assert through(beside, act)[0] == TOO_LATE


def test_own_metadata_is_allowed(beside: Beside) -> None:
    headers = {"x-mine": "1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    same(beside, lambda client: read(client.infer("told", x(1), headers=headers)))
    same(beside, lambda client: client.is_server_ready(headers=headers))


def test_keepalive_options_of_a_careful_client_keep_its_connection(beside: Beside) -> None:
    options = grpc.KeepAliveOptions(
        keepalive_time_ms=100, keepalive_permit_without_calls=True, http2_max_pings_without_data=0
    )
    with grpc.InferenceServerClient(beside.front.grpc, keepalive_options=options) as client:
        for _ in range(3):
            assert client.infer("slow", x(0.3)).as_numpy("y") is not None


def test_management_is_refused_with_words_about_what_to_use_instead(beside: Beside) -> None:
    with grpc.InferenceServerClient(beside.front.grpc) as client:
        for act in (client.load_model, client.unload_model):
            status, message = refused(lambda act=act: act("told"))  # type: ignore[misc]
            assert status == "StatusCode.UNIMPLEMENTED"
            assert "servegate" in message
