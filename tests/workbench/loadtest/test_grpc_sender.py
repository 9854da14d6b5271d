"""The sender of gRPC streams against a scripted server, and sockets that misbehave; TLS of both.

What unary calls do is in `test_grpc_unary.py`, without a child process.
At the end, both senders call a real Triton.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc
import numpy as np
import pytest
from certificates import Authority
from ports import free_ports
from tritonclient.grpc import service_pb2 as pb

from serve.core.calls import Verb
from serve.core.errors import Invalid
from serve.wire import kserve_grpc
from serve.workbench.loadtest.bodies import path_of, payload_of
from serve.workbench.loadtest.engine.grpc_requests import metadata_of
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload

from .conftest import Beside

DRIVER = Path(__file__).with_name("grpc_driver.py")
UNARY, STREAM = LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM


def drive(
    protocol: LaneProtocol,
    address: str,
    *rounds: int,
    payloads: tuple[Payload, ...] = (Payload(b"\x0a\x01m"),),
    most: int = 100,
    timeout: float = 20.0,
    trusted: str = "",
    **lane: Any,
) -> list[tuple[str, str]]:
    """Outcome and decision of each call, in the order of their starts."""
    made = Lane("lane", protocol, address, path_of(protocol, "m", ""), payloads, **lane)
    asked = {"lane": made.to_json(), "rounds": rounds, "most": most, "timeout": timeout}
    environment = os.environ | ({"SERVEGATE_CACERT": trusted} if trusted else {})
    ran = subprocess.run(
        [sys.executable, DRIVER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    return [(outcome, decision) for outcome, decision in json.loads(ran.stdout)]


Unary = Callable[[Any, grpc.ServicerContext], bytes]
Stream = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[bytes]]


def reply(version: str = "3", identity: str = "", *, final: bool | None = None) -> Any:
    """An answer without tensors."""
    made = pb.ModelInferResponse(model_name="m", model_version=version, id=identity)
    if final is not None:
        made.parameters["triton_final_response"].bool_param = final
    return made


def streamed(answer: Any = None, error: str = "") -> bytes:
    """A message of the stream."""
    made = pb.ModelStreamInferResponse(error_message=error, infer_response=answer)
    serialized: bytes = made.SerializeToString()
    return serialized


def each(answers: Callable[[Any], Iterable[bytes]]) -> Stream:
    """A stream that says this to each request."""
    return lambda requests, _: (one for request in requests for one in answers(request))


class ScriptedGrpc(grpc.GenericRpcHandler):
    """The server, from `with` to its end. `metadata` is what each call or stream came with."""

    def __init__(
        self,
        unary: Unary | None = None,
        stream: Stream | None = None,
        *,
        tls: grpc.ServerCredentials | None = None,
    ) -> None:
        self._unary = unary
        self._stream = stream
        self.metadata: list[dict[str, Any]] = []
        self._tls = tls
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._server = grpc.server(ThreadPoolExecutor(100), handlers=[self])

    def __enter__(self) -> Self:
        if self._tls is None:
            self._server.add_insecure_port(self.address)
        else:
            self._server.add_secure_port(self.address, self._tls)
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop(None).wait()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Which function answers."""
        read = pb.ModelInferRequest.FromString
        self.metadata.append(dict(details.invocation_metadata))
        if details.method == kserve_grpc.method_of(Verb.INFER) and self._unary:
            return grpc.unary_unary_rpc_method_handler(self._unary, request_deserializer=read)
        if details.method == kserve_grpc.method_of(Verb.STREAM) and self._stream:
            return grpc.stream_stream_rpc_method_handler(self._stream, request_deserializer=read)
        return None


# --- one call after the other, and many -----------------------------------------------------------


def test_calls_go_one_after_the_other_over_one_stream_that_has_the_headers() -> None:
    with ScriptedGrpc(stream=each(lambda one: [streamed(reply(identity=one.id))])) as server:
        told = drive(STREAM, server.address, 1, 1, 1, headers=(("Authorization", "Bearer sg_1"),))
        assert told == [("", "3")] * 3
        (metadata,) = server.metadata
        assert metadata["authorization"] == "Bearer sg_1"


def test_calls_that_wait_hold_up_no_others() -> None:
    together = threading.Barrier(40)

    def answers(_: Any) -> list[bytes]:
        together.wait(60.0)
        return [streamed(reply())]

    with ScriptedGrpc(stream=each(answers)) as server:
        assert drive(STREAM, server.address, 40, timeout=60.0) == [("", "3")] * 40


def test_what_grpc_cannot_send_is_refused_at_once() -> None:
    for header in (("a b", "c"), ("grpc-timeout", "1S"), ("name", "é")):
        lane = Lane("lane", UNARY, "127.0.0.1:1", "/", (), headers=(header,))
        with pytest.raises(Invalid, match="cannot be sent"):
            metadata_of(lane)


def test_an_answer_is_compared_with_what_is_expected() -> None:
    made = reply()
    made.outputs.add(name="y", datatype="FP32", shape=[1, 3])
    made.raw_output_contents.append(np.array([0, 1, 0], np.float32).tobytes())
    payloads = tuple(Payload(b"\x0a\x01m", expected=(row,), output="y") for row in (1, 2))
    with ScriptedGrpc(stream=each(lambda _: [streamed(made)])) as server:
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

    def answers(_: Any) -> list[bytes]:
        if next(calls) == 0:
            over.wait(60.0)
        return [streamed(reply())]

    with ScriptedGrpc(stream=each(answers)) as server:
        told = drive(STREAM, server.address, 1, 1, timeout=1.0)
        over.set()
    assert told == [("timeout", ""), ("", "3")]


# --- streams --------------------------------------------------------------------------------------


def test_an_error_in_the_stream_ends_the_call_and_not_the_stream() -> None:
    made = iter([streamed(error="no such thing"), streamed(reply())])
    with ScriptedGrpc(stream=each(lambda _: [next(made)])) as server:
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
    def answers(request: Any) -> list[bytes]:
        return [streamed(reply(f"{request.id}-{place}", request.id)) for place in (0, 1)]

    with ScriptedGrpc(stream=each(answers)) as server:
        told = drive(STREAM, server.address, 1, 1, 1)
    assert [decision for _, decision in told] == [f"0000000{call}-0" for call in (1, 2, 3)]


def test_a_call_that_asks_for_the_end_lasts_until_there() -> None:
    asked = pb.ModelInferRequest(model_name="m")
    asked.parameters["triton_enable_empty_final_response"].bool_param = True
    ended: list[str] = []

    def answers(request: Any) -> Iterator[bytes]:
        yield streamed(reply("1", request.id, final=False))
        yield streamed(reply("1", request.id, final=False))
        ended.append(request.id)
        yield streamed(reply("1", request.id, final=True))

    with ScriptedGrpc(stream=each(answers)) as server:
        payloads = (Payload(asked.SerializeToString()),)
        told = drive(STREAM, server.address, 1, 1, payloads=payloads)
    assert told == [("", "1")] * 2
    assert ended == ["00000001", "00000002"]


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


# --- a real Triton --------------------------------------------------------------------------------


def payload(protocol: LaneProtocol, model: str, *values: float, **more: Any) -> Payload:
    return payload_of(protocol, model, "", {"x": np.array(values, np.float32)}, {}, **more)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("protocol", [UNARY, STREAM])
def test_triton_answers_directly_and_through_the_gateway(
    beside: Beside, protocol: LaneProtocol
) -> None:
    payloads = (payload(protocol, "shared", 0.5, 2.0, 1.0, expected=(1,), output="x", rows=1),)
    direct, fronted = beside.grpc
    assert set(drive(protocol, direct, 8, 50, payloads=payloads)) == {("", "1")}
    decision = "1; by=latest; generation=1" if protocol is UNARY else "1"
    assert set(drive(protocol, fronted, 8, payloads=payloads)) == {("", decision)}


@pytest.mark.slow
@pytest.mark.triton
def test_triton_says_that_it_has_no_such_model(beside: Beside) -> None:
    payloads = (payload(UNARY, "absent", 0.0),)
    direct, fronted = beside.grpc
    assert drive(UNARY, direct, 1, payloads=payloads) == [("grpc_NOT_FOUND", "")]
    assert drive(UNARY, fronted, 1, payloads=payloads) == [("grpc_NOT_FOUND:unknown_model", "")]
    payloads = (payload(STREAM, "absent", 0.0), payload(STREAM, "shared", 0.0))
    for address in beside.grpc:
        told = drive(STREAM, address, 1, 1, payloads=payloads)
        assert [outcome for outcome, _ in told] == ["stream_error", ""]
