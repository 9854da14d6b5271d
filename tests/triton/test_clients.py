"""Clients of gRPC, and NVIDIA's for both protocols: what they get through the gateway is Triton's.

Of raw gRPC calls status, details, messages and their order, initial metadata, and the names of
trailing metadata are compared (the gateway adds `servegate-…`). A difference that is in `KNOWN` and
no longer occurs fails, too. Of odd heads and frames it is compared whether they are taken, and what
is answered then. How one is refused is each library's own affair.

The tests of NVIDIA's clients, which are unchanged, are about what the clients' own code does with
connections, streams, time limits and errors. `test_fleet` uses their asyncio clients.
"""

import asyncio
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, TypeVar

import grpc as rpc
import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from builders import until
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from grpc_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INFER,
    PADDED,
    PREFACE,
    Client,
    block,
    frame,
    message,
    settings,
)
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from serve.tensors import codec

from . import raw_grpc
from .conftest import Beside
from .grpc_calls import CALLS, KNOWN
from .raw_grpc import PATIENCE

pytestmark = pytest.mark.triton

T = TypeVar("T")
CANCELLED = ("StatusCode.CANCELLED", "Locally cancelled by application!")
TOO_LATE = ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded")


# --- raw calls over gRPC --------------------------------------------------------------------------


def told(heard: raw_grpc.Heard) -> str:
    """An answer as people can compare it."""
    return "\n".join(
        (
            f"status {heard.code}: {heard.details}",
            *(f"message {message[:600]!r}" for message in heard.messages),
            f"initial {heard.initial}",
            f"trailing {heard.keys}",
        )
    )


def test_calls_are_answered_as_triton_answers_them(beside: Beside) -> None:
    surprises = []
    for name, call in CALLS.items():
        directly, through = (raw_grpc.make(call, address) for address in beside.grpc)
        same = (directly, directly.keys) == (through, through.keys)
        if same and name in KNOWN:
            surprises.append(f"{name}: no difference any more: {KNOWN[name]}")
        elif not same and name not in KNOWN:
            surprises.append(f"{name}: directly {told(directly)}\nbut through {told(through)}")
    assert surprises == []


def test_a_deadline_that_passes_has_the_status_that_it_has_directly(beside: Beside) -> None:
    """The words may be those of the client's own library, when it is the first to notice."""
    request = raw_grpc.infer("slow", values=(0.6,))
    for call in (
        raw_grpc.unary("ModelInfer", request, timeout=0.3),
        raw_grpc.stream(request, timeout=0.3),
    ):
        assert [raw_grpc.make(call, address).code for address in beside.grpc] == [4, 4], call.method


# --- odd heads and frames -----------------------------------------------------------------------

BODY = raw_grpc.infer().SerializeToString()
WHOLE = message(BODY)
FIELDS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": INFER,
    ":authority": "here",
    "te": "trailers",
    "content-type": "application/grpc",
}


def call_head(flags: int = END_HEADERS, **fields: str) -> bytes:
    """A call's head with other fields; an empty one is left out. `_` stands for `-`."""
    named = FIELDS | {name.replace("_", "-"): value for name, value in fields.items()}
    return frame(HEADERS, flags, 1, block(*((k, v) for k, v in named.items() if v)))


def data(payload: bytes = WHOLE, flags: int = END_STREAM) -> bytes:
    return frame(DATA, flags, 1, payload)


FRAMES: dict[str, tuple[bytes, ...]] = {
    "an ordinary call": (call_head(), data()),
    "application/grpc+proto": (call_head(content_type="application/grpc+proto"), data()),
    "application/json": (call_head(content_type="application/json"), data()),
    "no content-type": (call_head(content_type=""), data()),
    "GET": (call_head(**{":method": "GET"}), data()),
    "PUT": (call_head(**{":method": "PUT"}), data()),
    "https": (call_head(**{":scheme": "https"}), data()),
    "no authority": (call_head(**{":authority": ""}), data()),
    "a path without a slash": (call_head(**{":path": "x"}), data()),
    "a query": (call_head(**{":path": INFER + "?x=1"}), data()),
    "no te": (call_head(te=""), data()),
    "a timeout": (call_head(grpc_timeout="20S"), data()),
    "a timeout that is none": (call_head(grpc_timeout="5x"), data()),
    "a timeout of nine digits": (call_head(grpc_timeout="123456789S"), data()),
    "an encoding that nobody knows": (call_head(grpc_encoding="br"), data(message(BODY, flag=1))),
    "an encoding that nobody knows, unused": (call_head(grpc_encoding="br"), data()),
    "a compressed message without an encoding": (call_head(), data(message(BODY, flag=1))),
    "a compressed message that is none": (
        call_head(grpc_encoding="gzip"),
        data(message(BODY, flag=1)),
    ),
    "a flag of two": (call_head(), data(message(BODY, flag=2))),
    "bytes one by one": (
        call_head(),
        *(data(WHOLE[at : at + 1], 0) for at in range(len(WHOLE))),
        data(b""),
    ),
    "padding": (call_head(), data(b"\x03" + WHOLE + b"\0\0\0", END_STREAM | PADDED)),
    "trailers": (call_head(), data(flags=0), frame(HEADERS, 5, 1, block(("x-more", "1")))),
    "an end inside a message": (call_head(), data(WHOLE[:-1])),
    "an end inside a prefix": (call_head(), data(WHOLE[:3])),
    "two messages": (call_head(), data(WHOLE + WHOLE)),
    "a half second message": (call_head(), data(WHOLE + WHOLE[:9])),
    "no message": (call_head(END_HEADERS | END_STREAM),),
    "an empty frame": (call_head(), data(b"")),
    "a path of another service": (call_head(**{":path": "/x.Y/Z"}), data()),
}
_SPECIFIED = "the gateway keeps to gRPC's specification, which Triton's library is laxer about"
_HTTP = "the gateway keeps to HTTP/2, which Triton's library is stricter about"
REFUSED_OTHERWISE = {
    "no content-type": _SPECIFIED,
    "a timeout of nine digits": _SPECIFIED,
    "a compressed message without an encoding": _SPECIFIED,
    "two messages": _SPECIFIED,
    "a half second message": _SPECIFIED,
    "no authority": _HTTP,
    "no te": _HTTP,
    "padding": _HTTP,
}


async def answer_to(address: str, frames: tuple[bytes, ...]) -> bytes | None:
    """The answer to these frames; None when they were refused, in whatever way."""
    host, _, port = address.rpartition(":")
    client = Client(PREFACE + settings())
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: client, host, int(port))
    client.send(*frames)
    heard = client.streams[1]
    await until(lambda: heard.is_over or heard.reset is not None, within=PATIENCE)
    client.abort()
    return bytes(heard.body) if heard.status == 0 else None


def test_odd_frames_are_taken_or_refused_as_by_triton(beside: Beside) -> None:
    surprises = []
    for name, frames in FRAMES.items():
        directly, through = (asyncio.run(answer_to(address, frames)) for address in beside.grpc)
        if (through != directly) != (name in REFUSED_OTHERWISE):
            surprises.append((name, directly, through, REFUSED_OTHERWISE.get(name)))
    assert surprises == []


# --- NVIDIA's clients -----------------------------------------------------------------------------


def same(beside: Beside, module: ModuleType, act: Callable[[Any], T]) -> T:
    """The result of this through the gateway; it has to be the result without it."""
    addresses = beside.http if module is http else beside.grpc
    results = []
    for address in addresses:
        with module.InferenceServerClient(address) as client:
            results.append(act(client))
    directly, through = results
    assert through == directly
    return through


def through(beside: Beside, act: Callable[[grpc.InferenceServerClient], T]) -> T:
    """The result through the gateway alone: Triton 2.51 may crash when its callers leave."""
    with grpc.InferenceServerClient(beside.front.grpc) as client:
        result = act(client)
    beside.front.wait_idle()
    return result


def x(module: ModuleType, values: Any) -> list[Any]:
    """The input x of a model: one number, or some."""
    array = np.atleast_1d(np.asarray(values, np.float32))
    made = module.InferInput("x", list(array.shape), "FP32")
    made.set_data_from_numpy(array)
    return [made]


def read(answer: Any) -> dict[str, Any]:
    """Everything that an answer of either protocol holds, in values that can be compared."""
    head = answer.get_response()
    if isinstance(head, Message):
        head = MessageToDict(head, preserving_proto_field_name=True)
    for output in head.get("outputs", ()):
        values = answer.as_numpy(output["name"])
        output["values"] = (values.dtype.name, values.shape, values.tolist())
    return dict(head)


def refused(act: Callable[[], object]) -> tuple[str | None, str]:
    """Status and message of the client's exception."""
    with pytest.raises(InferenceServerException) as caught:
        act()
    return caught.value.status(), caught.value.message()


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_the_options_of_a_call_reach_the_model(beside: Beside, module: ModuleType) -> None:
    compressed = {"compression_algorithm": "gzip"}
    if module is http:
        compressed = {f"{way}_compression_algorithm": "gzip" for way in ("request", "response")}
    for options in (
        {"model_version": "1"},
        {"request_id": "my-id", "parameters": {"word": "é", "number": 7, "yes": True}},
        {"priority": 1, "timeout": 1_000_000},
        {"sequence_id": 7, "sequence_start": True},
        {"sequence_id": "seven", "sequence_end": True},
        {"headers": {"x-mine": "1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}},
        compressed,
    ):

        def act(client: Any, options: dict[str, Any] = options) -> dict[str, Any]:  # type: ignore[assignment]
            return read(client.infer("told", x(module, 1), **options))

        answer = same(beside, module, act)
        assert answer["model_version"] == options.get("model_version", "2")
        assert answer.get("id", "") == options.get("request_id", "")


# --- Time, and clients that leave ---------------------------------------------------------------


def test_a_client_of_http_that_gives_up_waiting_does_not_reuse_its_connection(
    beside: Beside,
) -> None:
    with http.InferenceServerClient(beside.front.http, network_timeout=0.4) as client:
        with pytest.raises(TimeoutError):
            client.infer("slow", x(http, 1.0))
        assert client.infer("told", x(http, 3), request_id="3").get_response()["id"] == "3"
    beside.front.wait_idle()


def test_a_call_of_grpc_that_is_cancelled_or_late_ends_at_once(beside: Beside) -> None:
    def cancel(client: grpc.InferenceServerClient) -> tuple[str | None, str]:
        came: queue.Queue[InferenceServerException] = queue.Queue()
        call = client.async_infer(
            "slow", x(grpc, 0.3), callback=lambda result, error: came.put(error)
        )
        call.cancel()
        error = came.get(timeout=PATIENCE)
        return error.status(), error.message()

    def wait(client: grpc.InferenceServerClient) -> tuple[str | None, str]:
        return refused(lambda: client.infer("slow", x(grpc, 0.5), client_timeout=0.2))

    assert through(beside, cancel) == CANCELLED
    assert through(beside, wait) == TOO_LATE


def test_keepalive_options_of_a_careful_client_keep_its_connection(beside: Beside) -> None:
    options = grpc.KeepAliveOptions(
        keepalive_time_ms=100, keepalive_permit_without_calls=True, http2_max_pings_without_data=0
    )
    with grpc.InferenceServerClient(beside.front.grpc, keepalive_options=options) as client:
        for _ in range(3):
            assert client.infer("slow", x(grpc, 0.3)).as_numpy("y") is not None


# --- Streams ------------------------------------------------------------------------------------


class Stream:
    """A client's stream, and what came on it: answers as `read` reads them, and errors."""

    def __init__(self, client: grpc.InferenceServerClient, **options: Any) -> None:
        self._came: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: self._came.put((result, error)), **options)

    def next(self) -> Any:
        result, error = self._came.get(timeout=PATIENCE)
        return read(result) if error is None else (error.status(), error.message())


def test_a_stream_goes_on_after_errors_and_gives_what_it_owes_when_it_is_stopped(
    beside: Beside,
) -> None:
    def act(client: grpc.InferenceServerClient) -> list[Any]:
        stream, said = Stream(client), []
        for model, inputs in (("nothing", x(grpc, 1)), ("told", []), ("told", x(grpc, 1))):
            client.async_stream_infer(model, inputs, request_id="r")
            said.append(stream.next())
        for number in range(3):
            client.async_stream_infer("slow", x(grpc, 0.05), request_id=str(number))
        client.stop_stream()
        return said + sorted((stream.next() for _ in range(3)), key=lambda each: each["id"])

    unknown, empty, *good = same(beside, grpc, act)
    assert isinstance(unknown, tuple) and isinstance(empty, tuple)
    assert [each["id"] for each in good] == ["r", "0", "1", "2"]


def test_a_stream_that_is_cancelled_or_late_ends_with_the_client_s_own_error(
    beside: Beside,
) -> None:
    def cancel(client: grpc.InferenceServerClient) -> Any:
        stream = Stream(client)
        client.async_stream_infer("slow", x(grpc, 0.3))
        client.stop_stream(cancel_requests=True)
        return stream.next()

    def wait(client: grpc.InferenceServerClient) -> Any:
        stream = Stream(client, stream_timeout=0.2)
        client.async_stream_infer("slow", x(grpc, 0.5))
        return stream.next()

    assert through(beside, cancel) == CANCELLED
    # Whichever looks at its clock first: the client, or the gateway.
    assert through(beside, wait) in (TOO_LATE, (TOO_LATE[0], "the call's deadline has passed"))


@pytest.mark.slow
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


# --- gRPC at its limits -------------------------------------------------------------------------

UNBOUNDED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


@pytest.mark.slow
def test_tensors_of_any_size_come_back_unchanged(beside: Beside) -> None:
    with grpc.InferenceServerClient(beside.front.grpc) as client:
        for count in (1, 5_000, 300_000, 15_000_000):
            values = np.arange(count, dtype=np.float32)
            answer = client.infer("shared", x(grpc, values)).as_numpy("x")
            assert np.array_equal(answer, values), count


def test_a_decoupled_model_shares_its_stream_with_others(beside: Beside) -> None:
    """Directly, such a stream makes Triton 2.51 abort."""

    def asked(models: str) -> Iterator[service_pb2.ModelInferRequest]:
        for number, model in enumerate(("repeat", "shared", "nothing", "repeat", "repeat")):
            if model not in models:
                continue
            request = service_pb2.ModelInferRequest(
                model_name=model, model_version="1", id=str(number)
            )
            request.parameters["triton_enable_empty_final_response"].bool_param = True
            request.inputs.add(name="x", datatype="FP32", shape=[2])
            request.raw_input_contents.append(np.array([number + 1, 5], np.float32).tobytes())
            yield request

    def act(address: str, models: str = "repeat shared nothing") -> list[tuple[str, ...]]:
        with rpc.insecure_channel(address, options=UNBOUNDED) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            said = []
            for one in stub.ModelStreamInfer(asked(models), timeout=20):
                answer = one.infer_response
                outputs = b"".join(answer.raw_output_contents).hex()
                said.append((answer.id, one.error_message, answer.model_version, outputs))
            return sorted(said)

    directly = act(beside.triton.grpc, "repeat") + act(beside.triton.grpc, "shared nothing")
    assert len(directly) > 7
    for _ in range(20):
        assert act(beside.front.grpc) == sorted(directly)


def test_hostile_encodings_cost_no_other_call_its_connection(beside: Beside) -> None:
    """Values pass as they are encoded; what Triton refuses must not close what others share."""
    with rpc.insecure_channel(beside.front.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for metadata in ((("x-bin", b"\x00" * 900),), (("x", "~" * 900),)):
            answer = stub.ServerMetadata(service_pb2.ServerMetadataRequest(), metadata=metadata)
            assert answer.name == "triton"


def test_triton_survives_clients_that_leave_again_and_again(beside: Beside) -> None:
    request = service_pb2.ModelInferRequest(model_name="shared")
    request.inputs.add(name="x", datatype="FP32", shape=[1000])
    request.raw_input_contents.append(bytes(4000))

    def leave(number: int) -> None:
        with rpc.insecure_channel(beside.front.grpc, options=(("x", number),)) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            pending = [stub.ModelInfer.future(request) for _ in range(5)]
            stream = stub.ModelStreamInfer(iter([request] * 3))
            next(stream, None)
            stream.cancel()
            for one in pending[number % 5 :]:
                one.cancel()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(leave, range(100)))
    with rpc.insecure_channel(beside.front.grpc) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert answer.raw_output_contents[0] == bytes(4000)
    beside.front.wait_idle()
    assert beside.triton.process.poll() is None
