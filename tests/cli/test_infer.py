"""`servegate infer` over HTTP and gRPC, and an answer as people and programs see it."""

import json
import math

import numpy as np
import pytest
import typer
from data_ports import FAULTS, RAW, Gateway, grpc_port, http_port
from typer.testing import CliRunner

from serve.cli.answers import CallTally, OutputReading, bar, document, lines
from serve.cli.asked import ModelReference, parse_asked
from serve.cli.callers import Answer, GrpcCaller, HttpCaller
from serve.cli.infer import infer
from serve.core.errors import (
    DeadlineExceeded,
    Invalid,
    NotFound,
    OutcomeUnknown,
    ServegateError,
    Unavailable,
)
from serve.tensors.codec import InferReply, MalformedReply
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import DeclaredOutput


@pytest.fixture(scope="module")
def http_url():
    with http_port() as url:
        yield url


@pytest.fixture(scope="module")
def grpc_url():
    with grpc_port() as target:
        yield target


@pytest.fixture
def command(http_url, grpc_url):
    """`command(*arguments)` runs `servegate infer`; errors of ours are raised as they are."""
    app = typer.Typer()
    app.command()(infer)

    def run(*arguments, admin=http_url):
        urls = ["--url", http_url, "--grpc-url", grpc_url, "--admin-url", admin]
        result = CliRunner().invoke(app, [*arguments, *urls])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_a_name_may_carry_a_version_or_a_label():
    names = {
        "m": ModelReference("m"),
        "m@3": ModelReference("m", "3"),
        "m:stable": ModelReference("m", "stable"),
    }
    assert {text: parse_asked(text) for text in names} == names
    for text in ("", "m@", "m@x", "m@-1", "m:", "m:2", "a/b", "m@3:stable", "stats"):
        with pytest.raises(Invalid):
            parse_asked(text)


def test_the_command_shows_who_answered_and_the_labelled_scores(command):
    result = command("m", "--input", "random", "--top-k", "1")
    first, *rest = result.stdout.splitlines()
    assert first.startswith("m version 2 (by label:stable, generation 7), ")
    assert rest == ["y  FP32 [1, 2]", "  index  label   score", "      1  dog    0.7500"]
    assert result.stderr == ""
    unlabelled = command("m", "--input", "random", admin="http://127.0.0.1:9")
    assert unlabelled.stdout.splitlines()[1:] == ["y  FP32 [1, 2]", "  0.25, 0.75"]
    assert unlabelled.stderr.startswith("class names and output kinds are not available: ")
    command("m:stable", "--input", "random", "--batch", "3")
    path, headers, body = Gateway.asked[-1]
    assert path == "/v2/models/m/versions/stable/infer"
    length = int(headers["Inference-Header-Content-Length"])
    assert json.loads(body[:length])["inputs"][0]["shape"] == [3, 2]
    assert len(body) == length + 3 * 2 * 4
    with pytest.raises(NotFound, match="not here"):
        command("nope", "--input", "random")


def test_json_is_one_object_on_stdout_over_grpc_too(command):
    result = command("m@3", "--input", "x=random", "--grpc", "--json", "--repeat", "3")
    shown = json.loads(result.stdout)
    assert (shown["version"], shown["by"], shown["generation"]) == (3, "number", 8)
    assert [row["label"] for row in shown["outputs"]["y"]["top_k"][0]] == ["dog", "cat"]
    assert shown["repeat"]["versions"] == {"3": 3}


def test_what_the_gateway_refuses_becomes_the_same_error_here(http_url, grpc_url):
    with HttpCaller(http_url) as over_http, GrpcCaller(grpc_url) as over_grpc:
        for caller in (over_http, over_grpc):
            for name, (_, kind) in FAULTS.items():
                with pytest.raises(ServegateError) as raised:
                    caller.infer(ModelReference(name), RAW, {})
                assert type(raised.value) is kind, name
                if kind is not DeadlineExceeded:
                    assert raised.value.what == "it failed: for a reason"
                    assert raised.value.try_this == "something else"
                    assert raised.value.code == "a_code"
            with pytest.raises(MalformedReply):
                caller.infer(ModelReference("broken"), RAW, {})
        with pytest.raises(OutcomeUnknown) as raised:
            over_http.infer(ModelReference("html"), RAW, {})
    assert raised.value.what == "the gateway returned status 502: <html> <b>proxy</b></html>"


def test_a_gateway_that_is_not_there_says_what_to_try():
    with HttpCaller("127.0.0.1:9") as caller, pytest.raises(Unavailable) as raised:
        caller.metadata(ModelReference("m"))
    assert raised.value.what == "the gateway at http://127.0.0.1:9 does not respond"
    assert "servegate up" in raised.value.try_this
    with pytest.raises(Unavailable, match="--grpc-url"), GrpcCaller("127.0.0.1:9"):
        pass


# --- answers -------------------------------------------------------------------------------------


LABELS = {"scores": ("cat", "dog", "mouse")}
SPECS = {
    "scores": TensorSpec("scores", "FP32", (-1, 3)),
    "one": TensorSpec("one", "FP32", (3,)),
    "per_row": TensorSpec("per_row", "FP32", (-1,)),
    "text": TensorSpec("text", "BYTES", (-1, 1)),
    "map": TensorSpec("map", "FP32", (-1, 2, 2)),
    "table": TensorSpec("table", "FP32", (4, 3)),
}
CLASSES = DeclaredOutput("classes", "probabilities")
READING = OutputReading(2, LABELS, SPECS, {"scores": CLASSES, "one": CLASSES})


def answer(**outputs):
    datatypes = {
        name: "BYTES" if each.dtype == object else "FP32" for name, each in outputs.items()
    }
    reply = InferReply("m", "2", outputs, datatypes)
    return Answer(reply, "2", "split", 7, 3.14159)


def floats(*values):
    return np.array(values, dtype=np.float32)


def texts(given, reading=READING):
    return [line.text for line in lines("m", given, reading, blocks=True)]


def test_scores_are_a_table_with_labels_under_the_decision_if_there_are_any():
    assert texts(answer(scores=floats([0.25, 0.5, 0.125]))) == [
        "m version 2 (by split, generation 7), 3.1 ms",
        "scores  FP32 [1, 3]",
        "  index  label   score",
        "      1  dog    0.5000",
        "      0  cat    0.2500",
    ]
    unlabelled = ["  index  score", "      1     30", "      2     20"]
    assert texts(answer(one=floats(10, 30, 20)))[2:] == unlabelled
    of_triton = Answer(InferReply("m", "", {}, {}), "", "", None, 1.0)
    assert texts(of_triton) == ["m, 1.0 ms"]
    assert document("m", of_triton, READING)["version"] is None


def test_every_row_of_a_batch_has_its_table_and_many_rows_are_cut():
    shown = texts(answer(scores=floats(*[[1, 2, 3]] * 10)))
    assert shown.count("  index  label  score") == 8
    assert shown[-1] == "  2 more rows; use --json to see all"


def test_other_tensors_are_previewed():
    shown = texts(answer(map=np.arange(40, dtype=np.float32).reshape(10, 2, 2)))
    assert shown[1:] == ["map  FP32 [10, 2, 2]", "  0, 1, 2, 3, 4, 5, 6, 7, … (40 elements)"]
    assert texts(answer(text=np.array([[b"hi"]], dtype=object)))[-1] == "  'hi'"
    assert texts(answer(map=np.zeros((0, 2, 2), dtype=np.float32)))[-1] == "  no elements"


def test_what_is_not_declared_is_plain_values():
    given = answer(per_row=floats(1, 2, 3), table=np.zeros((4, 3), dtype=np.float32))
    assert all("data" in shown for shown in document("m", given, READING)["outputs"].values())
    assert READING.scores("one", floats(1, 2, 3)) is not None
    assert READING.scores("unknown", floats([1, 2, 3])) is None


def test_bars_are_shares_of_one_or_of_the_highest_score_in_eighths_of_a_character():
    for scores in ([0.5, 1, 0], [8, 4, -1]):
        shown = lines("m", answer(scores=floats(scores)), READING, blocks=False)
        assert [line.bar for line in shown][3:] == ["#" * 24, "#" * 12]
    drawn = {0: "", -1: "", math.nan: "", math.inf: "", 1 / 192: "▏", 0.5: "█" * 12, 1: "█" * 24}
    for share, blocks in drawn.items():
        assert bar(share, blocks=True) == blocks


def test_programs_get_one_json_object():
    given = answer(scores=floats([0.25, 0.5, 0.125]), text=np.array([["ü".encode()]], dtype=object))
    assert json.loads(json.dumps(document("m", given, READING), allow_nan=False)) == {
        "model": "m",
        "version": 2,
        "by": "split",
        "generation": 7,
        "milliseconds": 3.142,
        "outputs": {
            "scores": {
                "shape": [1, 3],
                "datatype": "FP32",
                "kind": "classes",
                "top_k": [
                    [
                        {"index": 1, "label": "dog", "value": 0.5},
                        {"index": 0, "label": "cat", "value": 0.25},
                    ]
                ],
            },
            "text": {"shape": [1, 1], "datatype": "BYTES", "data": [["ü"]]},
        },
    }


def test_values_that_json_lacks_are_null():
    given = answer(scores=floats([math.nan, 1, math.inf]), map=floats([[math.nan, 1]]))
    outputs = json.loads(json.dumps(document("m", given, READING), allow_nan=False))["outputs"]
    assert [row["value"] for row in outputs["scores"]["top_k"][0]] == [None, 1.0]
    assert outputs["map"]["data"] == [[[None, 1.0]]]


def test_repeated_calls_are_counted_by_version():
    tally = CallTally.of([("2", 4.0), ("1", 1.0), ("2", 3.0), ("2", 2.0)])
    assert tally.document() == {
        "calls": 4,
        "versions": {"1": 1, "2": 3},
        "p50_milliseconds": 2.0,
        "max_milliseconds": 4.0,
    }
    assert "version 1: 1, version 2: 3; median 2.0 ms, slowest 4.0 ms" in tally.line()
