"""NVIDIA's HTTP client, unchanged: through the gateway it gets what it gets from Triton."""

import urllib.request
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import tritonclient.http as http
from harness import until
from tritonclient.utils import InferenceServerException

from .client_models import MODELS, VALUES
from .conftest import Beside

pytestmark = pytest.mark.triton

T = TypeVar("T")
BYTES_IN_JSON = np.array([b"", "naïve \U0001f40d".encode()], np.object_)


def same(beside: Beside, act: Callable[[http.InferenceServerClient], T], **options: Any) -> T:
    """What this does through the gateway; it has to be what it does without."""
    said = []
    for address in beside.http:
        with http.InferenceServerClient(address, **options) as client:
            said.append(act(client))
    directly, through = said
    assert through == directly
    return through


def tensor(name: str, values: np.ndarray[Any, Any], *, binary: bool = True) -> http.InferInput:
    kind = "FP32" if name == "x" else name
    made = http.InferInput(name, list(values.shape), kind)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def x(*values: float) -> list[http.InferInput]:
    return [tensor("x", np.array(values, np.float32))]


def read(answer: http.InferResult) -> dict[str, Any]:
    """Everything that an answer holds, in values that can be compared."""
    head = answer.get_response()
    for output in head["outputs"]:
        values = answer.as_numpy(output["name"])
        output["values"] = (values.dtype.name, values.shape, values.tolist())
    return dict(head)


def refused(act: Callable[[], object]) -> tuple[str | None, str]:
    """Status and message of the client's exception."""
    with pytest.raises(InferenceServerException) as caught:
        act()
    return caught.value.status(), caught.value.message()


@pytest.mark.parametrize("kind", VALUES)
def test_tensors_of_every_datatype_come_back_unchanged(beside: Beside, kind: str) -> None:
    answer = same(beside, lambda client: read(client.infer("mirror", [tensor(kind, VALUES[kind])])))
    assert answer["outputs"][0]["values"][2] == VALUES[kind].tolist()


@pytest.mark.parametrize("kind", [one for one in VALUES if one not in ("FP16", "BF16")])
@pytest.mark.parametrize("binary_out", [False, True])
def test_tensors_in_json_come_back_unchanged(beside: Beside, kind: str, binary_out: bool) -> None:
    values = BYTES_IN_JSON if kind == "BYTES" else VALUES[kind]

    def act(client: http.InferenceServerClient) -> dict[str, Any]:
        wanted = [http.InferRequestedOutput("out_" + kind, binary_data=binary_out)]
        return read(client.infer("mirror", [tensor(kind, values, binary=False)], outputs=wanted))

    same(beside, act)


def test_several_inputs_are_answered_with_the_outputs_that_were_requested(beside: Beside) -> None:
    asked = [
        tensor(kind, VALUES[kind], binary=kind != "INT8") for kind in ("FP32", "INT8", "BYTES")
    ]

    def act(client: http.InferenceServerClient) -> list[dict[str, Any]]:
        some = [http.InferRequestedOutput(f"out_{kind}") for kind in ("BYTES", "INT8")]
        mixed = [http.InferRequestedOutput("out_FP32", binary_data=False), some[0]]
        return [
            read(client.infer("mirror", asked, outputs=wanted)) for wanted in (None, some, mixed)
        ]

    every, some, mixed = same(beside, act)
    assert [len(answer["outputs"]) for answer in (every, some, mixed)] == [3, 2, 2]


@pytest.mark.parametrize("version", ["", "1", "2"])
def test_the_version_that_is_asked_for_answers(beside: Beside, version: str) -> None:
    answer = same(beside, lambda client: read(client.infer("told", x(1), model_version=version)))
    assert answer["model_version"] == (version or "2")


def test_request_id_and_parameters_reach_the_model_and_the_id_comes_back(beside: Beside) -> None:
    def act(client: http.InferenceServerClient) -> dict[str, Any]:
        more = {"word": "é", "number": 7, "yes": True, "half": 0.5}
        return read(client.infer("told", x(1), request_id="my-id", parameters=more))

    answer = same(beside, act)
    assert answer["id"] == "my-id"
    assert b'"my-id"' in answer["outputs"][0]["values"][2][0]


def test_priority_timeout_and_sequence_are_accepted_by_a_model_without_them(beside: Beside) -> None:
    def act(client: http.InferenceServerClient) -> list[dict[str, Any]]:
        return [
            read(client.infer("told", x(1), priority=1, timeout=1_000_000)),
            read(client.infer("told", x(1), sequence_id=7, sequence_start=True)),
            read(client.infer("told", x(1), sequence_id="seven", sequence_end=True)),
        ]

    same(beside, act)


@pytest.mark.parametrize("count", [1, 2])
def test_classes_come_back_with_their_labels(beside: Beside, count: int) -> None:
    values = np.array([0.25, 0.75, 0.5], np.float32)

    def act(client: http.InferenceServerClient) -> dict[str, Any]:
        wanted = [http.InferRequestedOutput("out_FP32", class_count=count)]
        return read(client.infer("mirror", [tensor("FP32", values)], outputs=wanted))

    answer = same(beside, act)
    assert answer["outputs"][0]["values"][2] == [b"0.750000:1:one", b"0.500000:2:two"][:count]


@pytest.mark.parametrize("asked", ["gzip", "deflate", None])
@pytest.mark.parametrize("answered", ["gzip", "deflate", None])
def test_bodies_may_be_compressed_both_ways(
    beside: Beside, asked: str | None, answered: str | None
) -> None:
    values = np.arange(5000, dtype=np.float32)

    def act(client: http.InferenceServerClient) -> dict[str, Any]:
        return read(
            client.infer(
                "mirror",
                [tensor("FP32", values)],
                request_compression_algorithm=asked,
                response_compression_algorithm=answered,
            )
        )

    same(beside, act)


def test_calls_that_are_made_at_once_all_get_their_own_answer(beside: Beside) -> None:
    def act(client: http.InferenceServerClient) -> list[dict[str, Any]]:
        calls = [client.async_infer("told", x(n), request_id=str(n)) for n in range(40)]
        return [read(call.get_result()) for call in calls]

    answers = same(beside, act, concurrency=8)
    assert [answer["id"] for answer in answers] == [str(n) for n in range(40)]


def test_the_server_describes_itself_and_its_models(beside: Beside) -> None:
    def act(client: http.InferenceServerClient) -> list[Any]:
        return [
            client.is_server_live(),
            client.is_server_ready(),
            client.get_server_metadata(),
            client.get_model_metadata("told"),
            client.get_model_metadata("told", "1"),
            client.get_model_config("mirror"),
            client.get_model_config("told", "2"),
            client.is_model_ready("told"),
            client.is_model_ready("told", "1"),
            client.is_model_ready("told", "9"),
            client.is_model_ready("nothing"),
        ]

    assert same(beside, act)[7:] == [True, True, False, False]


def test_the_repository_index_names_what_is_served(beside: Beside) -> None:
    def act(client: http.InferenceServerClient) -> list[tuple[str, ...]]:
        index = client.get_model_repository_index()
        return sorted((one["name"], one["version"], one["state"]) for one in index)

    assert ("told", "2", "READY") in same(beside, act)


def test_statistics_count_what_was_called(beside: Beside) -> None:
    """Triton counts a call a moment after it has answered."""

    def counts(client: http.InferenceServerClient) -> dict[str, int]:
        told = client.get_inference_statistics("told")["model_stats"]
        return {one["version"]: one["inference_stats"]["success"]["count"] for one in told}

    with http.InferenceServerClient(beside.front.http) as client:
        before = counts(client)
        for version in ("1", "2", "2"):
            client.infer("told", x(1), model_version=version)
        until(lambda: sum(counts(client).values()) == sum(before.values()) + 3)
        after = counts(client)
        everything = client.get_inference_statistics()["model_stats"]
    assert {version: after[version] - before[version] for version in after} == {"1": 1, "2": 2}
    assert {one["name"] for one in everything} == {model.name for model in MODELS}
    same(beside, lambda client: client.get_inference_statistics("told", "1"))


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
            "told", x(1), outputs=[http.InferRequestedOutput("no_such_output")]
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
    beside: Beside, act: Callable[[http.InferenceServerClient], object]
) -> None:
    same(beside, lambda client: refused(lambda: act(client)))


def test_a_client_that_gives_up_waiting_says_so_and_its_connection_is_not_reused(
    beside: Beside,
) -> None:
    with http.InferenceServerClient(beside.front.http, network_timeout=0.6) as client:
        with pytest.raises(TimeoutError):
            client.infer("slow", x(1.5))
        assert client.infer("told", x(3), request_id="3").get_response()["id"] == "3"
    beside.front.wait_idle()


def test_own_headers_and_query_parameters_are_allowed(beside: Beside) -> None:
    def act(client: http.InferenceServerClient) -> list[Any]:
        headers, query = {"X-Mine": "1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}, {"q": "é"}
        return [
            read(client.infer("told", x(1), headers=headers, query_params=query)),
            client.get_model_metadata("told", headers=headers, query_params=query),
            client.is_server_ready(headers=headers, query_params=query),
        ]

    same(beside, act)


def test_bodies_that_the_client_only_generates_and_parses_are_the_same(beside: Beside) -> None:
    """For users who bring their own HTTP library."""
    body, length = http.InferenceServerClient.generate_request_body(
        [tensor("INT8", VALUES["INT8"])], outputs=[http.InferRequestedOutput("out_INT8")]
    )
    for address in beside.http:
        headers = {"Inference-Header-Content-Length": str(length)}
        asked = urllib.request.Request(f"http://{address}/v2/models/mirror/infer", body, headers)
        with urllib.request.urlopen(asked) as answer:
            told = int(answer.headers["Inference-Header-Content-Length"])
            parsed = http.InferenceServerClient.parse_response_body(
                answer.read(), header_length=told
            )
        assert parsed.as_numpy("out_INT8").tolist() == VALUES["INT8"].tolist()


def test_management_is_refused_with_words_about_what_to_use_instead(beside: Beside) -> None:
    with http.InferenceServerClient(beside.front.http) as client:
        for act in (client.load_model, client.unload_model):
            status, message = refused(lambda act=act: act("told"))  # type: ignore[misc]
            assert status == "403"
            assert "servegate" in message
