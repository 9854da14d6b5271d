"""Real gRPC clients (grpcio) in front of the listener, and a real gRPC server behind it."""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import pytest
from builders import snapshot, target, until, view
from grpc_wire import LIMITS, Scene, play
from tritonclient.grpc import service_pb2, service_pb2_grpc

T = TypeVar("T")
UNBOUNDED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
ONE = snapshot(view(target(1, "a")))


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Digest(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers with the digest of the tensor, and with as many bytes as the request's id says."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.has_begun = threading.Event()
        self.was_cancelled = threading.Event()

    def ModelInfer(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.id == "wait":
            context.add_callback(self.was_cancelled.set)
            self.has_begun.set()
            self.may_answer.wait(10)
        context.set_trailing_metadata((("y-bin", b"\x00\xff"), ("x", "1")))
        response = service_pb2.ModelInferResponse(model_name="m", model_version="1")
        response.id = hashlib.sha256(request.raw_input_contents[0]).hexdigest()
        size = int(request.id) if request.id.isdigit() else 0
        response.raw_output_contents.append(bytes(size))
        return response

    def ModelStreamInfer(self, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            response = service_pb2.ModelStreamInferResponse()
            response.infer_response.id = request.id
            response.infer_response.model_version = request.model_version
            yield response


@dataclass(slots=True)
class Real:
    """A stub of the listener, and the server behind it."""

    stub: Any
    server: Digest


def real(act: Callable[[Real], T], loop: str, *, cancel: str = "absorb") -> T:
    """Act with a blocking client, in another thread than the listener's loop."""
    digest = Digest()
    server = grpc.server(ThreadPoolExecutor(8), options=UNBOUNDED)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(digest, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def client(listening: int) -> T:
        with grpc.insecure_channel(f"127.0.0.1:{listening}", options=UNBOUNDED) as channel:
            return act(Real(service_pb2_grpc.GRPCInferenceServiceStub(channel), digest))

    async def scenario(scene: Scene) -> T:
        now = scene.plane.live.snapshot
        replica = now.replicas["a"]
        object.__setattr__(replica, "grpc_port", port)
        told = await asyncio.to_thread(client, scene.port)
        digest.may_answer.set()
        await until(lambda: scene.listener.connections == 0)
        return told

    try:
        return play(scenario, loop, ONE, limits=LIMITS, cancel=cancel)
    finally:
        digest.may_answer.set()
        server.stop(None)


def request(size: int = 64, **more: Any) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name="m", **more)
    made.raw_input_contents.append(hashlib.sha256(b"seed").digest() * (size // 32))
    return made


def digest_of(asked: service_pb2.ModelInferRequest) -> str:
    return hashlib.sha256(asked.raw_input_contents[0]).hexdigest()


@pytest.mark.parametrize("size", [0, 64, 20_000, 1 << 20, 4 << 20, 60 << 20])
def test_messages_of_all_sizes_pass_unchanged_both_ways(loop: str, size: int) -> None:
    asked = request(size, id=str(size))

    def act(at: Real) -> tuple[str, int, dict[str, Any]]:
        answer, call = at.stub.ModelInfer.with_call(asked, timeout=30)
        return answer.id, len(answer.raw_output_contents[0]), dict(call.trailing_metadata())

    told, length, trailers = real(act, loop)
    assert (told, length) == (digest_of(asked), size)
    assert (trailers["y-bin"], trailers["x"]) == (b"\x00\xff", "1")
    assert trailers["servegate-version"] == "1; by=latest; generation=1"


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_calls_are_answered(loop: str, compression: grpc.Compression) -> None:
    asked = request(50_000)
    answer = real(lambda r: r.stub.ModelInfer(asked, compression=compression), loop)
    assert answer.id == digest_of(asked)


def test_many_calls_at_one_time_are_answered(loop: str) -> None:
    sizes = [64 << (number % 12) for number in range(200)]

    def act(at: Real) -> list[bool]:
        asked = [request(size, id=str(size)) for size in sizes]
        pending = [at.stub.ModelInfer.future(one, timeout=30) for one in asked]
        return [p.result().id == digest_of(one) for p, one in zip(pending, asked, strict=True)]

    assert all(real(act, loop))


def test_an_error_keeps_its_message_in_every_script(loop: str) -> None:
    def act(at: Real) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as caught:
            at.stub.ModelInfer(service_pb2.ModelInferRequest(model_name="größe 100% 😀"))
        return caught.value.code(), caught.value.details()

    code, said = real(act, loop)
    assert code is grpc.StatusCode.NOT_FOUND
    assert said == "Request for unknown model: 'größe 100% 😀' is not found"


@pytest.mark.parametrize(("cancel", "is_told"), [("absorb", False), ("forward", True)])
def test_a_cancelled_call_reaches_the_server_only_where_it_may(
    loop: str, cancel: str, is_told: bool
) -> None:
    def act(at: Real) -> bool:
        pending = at.stub.ModelInfer.future(request(id="wait"))
        assert at.server.has_begun.wait(10)
        pending.cancel()
        at.stub.ServerLive(service_pb2.ServerLiveRequest())  # the gateway has seen it
        if is_told:
            return at.server.was_cancelled.wait(10)
        return at.server.was_cancelled.is_set()

    assert real(act, loop, cancel=cancel) == is_told


def test_a_stream_answers_every_message(loop: str) -> None:
    def act(at: Real) -> list[tuple[str, str]]:
        asked = [request(32 << (number % 14), id=str(number)) for number in range(100)]
        answers = at.stub.ModelStreamInfer(iter(asked), timeout=30)
        return [(one.infer_response.id, one.infer_response.model_version) for one in answers]

    assert real(act, loop) == [(str(number), "1") for number in range(100)]


def test_a_stream_that_is_cancelled_ends(loop: str) -> None:
    def act(at: Real) -> str:
        more = threading.Event()

        def asked() -> Iterator[service_pb2.ModelInferRequest]:
            yield request(id="1")
            more.wait(10)

        answers = at.stub.ModelStreamInfer(asked())
        first = next(answers).infer_response.id
        answers.cancel()
        more.set()
        return str(first)

    assert real(act, loop) == "1"
