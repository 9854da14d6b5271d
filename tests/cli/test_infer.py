"""`servegate infer` against a small gateway of our own, over real sockets, HTTP and gRPC."""

import json

import pytest
import typer
from data_ports import FAULTS, RAW, Gateway, grpc_port, http_port
from typer.testing import CliRunner

from serve.cli.asked import ModelReference, parse_asked
from serve.cli.callers import GrpcCaller, HttpCaller
from serve.cli.infer import infer
from serve.core.errors import (
    DeadlineExceeded,
    Invalid,
    NotFound,
    OutcomeUnknown,
    ServegateError,
    Unavailable,
)
from serve.tensors.codec import MalformedReply


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
