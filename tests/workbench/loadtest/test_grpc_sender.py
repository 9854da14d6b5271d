"""The sender of gRPC streams against a scripted server, and sockets that misbehave; TLS of both.

What unary calls do is in `test_grpc_frames.py` and `test_grpc_links.py`, without a child process.
"""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import Authority
from tritonclient.grpc import service_pb2 as pb

from serve.core.errors import Invalid
from serve.workbench.loadtest.engine.grpc_requests import metadata_of
from serve.workbench.loadtest.plan import Lane, Payload

from .grpc_driving import STREAM, UNARY, drive
from .grpc_scripted import ScriptedGrpc, reply, streamed

# --- one call after the other, and many -----------------------------------------------------------


def test_calls_go_one_after_the_other_over_one_stream_that_has_the_headers() -> None:
    with ScriptedGrpc(stream=echo) as server:
        told = drive(STREAM, server.address, 1, 1, 1, headers=(("Authorization", "Bearer sg_1"),))
        assert told == [("", "3")] * 3
        (metadata,) = server.metadata
        assert metadata["authorization"] == "Bearer sg_1"


def test_calls_that_wait_hold_up_no_others() -> None:
    together = threading.Barrier(40)

    def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        for _ in requests:
            together.wait(60.0)
            yield streamed(reply())

    with ScriptedGrpc(stream=stream) as server:
        assert drive(STREAM, server.address, 40, timeout=60.0) == [("", "3")] * 40


def test_what_grpc_cannot_send_is_refused_at_once() -> None:
    for header in (("a b", "c"), ("grpc-timeout", "1S"), ("name", "é")):
        lane = Lane("lane", UNARY, "127.0.0.1:1", "/", (), headers=(header,))
        with pytest.raises(Invalid, match="cannot be sent"):
            metadata_of(lane)


def test_an_answer_is_compared_with_what_is_expected() -> None:
    def answer() -> Any:
        made = reply()
        made.outputs.add(name="y", datatype="FP32", shape=[1, 3])
        made.raw_output_contents.append(np.array([0, 1, 0], np.float32).tobytes())
        return made

    def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        return (streamed(answer()) for _ in requests)

    payloads = tuple(Payload(b"\x0a\x01m", expected=(row,), output="y") for row in (1, 2))
    with ScriptedGrpc(stream=stream) as server:
        told = drive(STREAM, server.address, 2, payloads=payloads)
    assert [outcome for outcome, _ in told] == ["", "wrong_answer"]


def test_tls_trusts_whom_the_environment_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain, key = authority.issue("server")
    tls = grpc.ssl_server_credentials([(key.read_bytes(), chain.read_bytes())])
    with ScriptedGrpc(lambda *_: reply().SerializeToString(), tls=tls) as server:
        trusting = drive(UNARY, server.address, 1, tls=True, trusted=str(authority.path))
        assert trusting == [("", "3")]
        assert drive(UNARY, server.address, 1, tls=True) == [("connect", "")]


# --- what goes wrong ------------------------------------------------------------------------------


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        assert drive(STREAM, address, 1, 1) == [("connect", "")] * 2


def test_a_connection_that_breaks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=break_one, args=(listener,)).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert drive(STREAM, address, 1) == [("reset", "")]


def test_a_call_ends_when_its_time_is_over_and_the_next_one_goes_on() -> None:
    over, calls = threading.Event(), iter(range(9))

    def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        for _ in requests:
            if next(calls) == 0:
                over.wait(60.0)
            yield streamed(reply())

    with ScriptedGrpc(stream=stream) as server:
        told = drive(STREAM, server.address, 1, 1, timeout=1.0)
        over.set()
    assert told == [("timeout", ""), ("", "3")]


# --- streams --------------------------------------------------------------------------------------


def test_an_error_in_the_stream_ends_the_call_and_not_the_stream() -> None:
    def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        next(requests)
        yield streamed(error="no such thing")
        next(requests)
        yield streamed(reply())

    with ScriptedGrpc(stream=stream) as server:
        assert drive(STREAM, server.address, 1, 1) == [("stream_error", ""), ("", "3")]
        assert len(server.metadata) == 1


def test_a_stream_that_ends_is_opened_again_by_the_next_call() -> None:
    def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        if next(requests).id == "00000001":
            context.abort(grpc.StatusCode.UNAVAILABLE, "going down")
        yield streamed(reply())

    with ScriptedGrpc(stream=stream) as server:
        told = drive(STREAM, server.address, 1, 1)
        assert told == [("grpc_UNAVAILABLE", ""), ("", "3")]
        assert len(server.metadata) == 2


def test_further_answers_of_an_earlier_call_are_passed_over() -> None:
    def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        for count, request in enumerate(requests):
            yield streamed(reply(f"{count}0", request.id))
            yield streamed(reply(f"{count}1", request.id))

    with ScriptedGrpc(stream=stream) as server:
        told = drive(STREAM, server.address, 1, 1, 1)
    assert [decision for _, decision in told] == ["00", "10", "20"]


def test_a_call_that_asks_for_the_end_lasts_until_there() -> None:
    asked = pb.ModelInferRequest(model_name="m")
    asked.parameters["triton_enable_empty_final_response"].bool_param = True
    ended: list[str] = []

    def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        for request in requests:
            yield streamed(reply("1", request.id, final=False))
            yield streamed(reply("1", request.id, final=False))
            ended.append(request.id)
            yield streamed(reply("1", request.id, final=True))

    with ScriptedGrpc(stream=stream) as server:
        payloads = (Payload(asked.SerializeToString()),)
        told = drive(STREAM, server.address, 1, 1, payloads=payloads)
    assert told == [("", "1")] * 2
    assert ended == ["00000001", "00000002"]


def echo(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
    return (streamed(reply(identity=request.id)) for request in requests)


def break_one(listener: socket.socket) -> None:
    """Speak HTTP/2 until a call is there, then go."""
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"\0\0\0\4\0\0\0\0\0")
        came = b""
        while b"ModelInfer" not in came and b"ModelStreamInfer" not in came:
            came += connection.recv(1 << 16)
            if came and b"\0\0\0\4\1\0\0\0\0" not in came:
                connection.sendall(b"\0\0\0\4\1\0\0\0\0")
