"""Raw gRPC calls: bytes in, bytes out, and all that an answer says next to them."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

SERVICE = "/inference.GRPCInferenceService/"
PATIENCE = 30.0  # seconds; a bound
_COMPRESSIONS = {
    "": grpc.Compression.NoCompression,
    "gzip": grpc.Compression.Gzip,
    "deflate": grpc.Compression.Deflate,
}
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0))


@dataclass(frozen=True, slots=True)
class RawCall:
    """What a client sends: a method's path, and the bytes of its messages.

    `answers` are awaited behind each message, before the next, so that their order is settled;
    without them the client half-closes with answers owed.
    """

    method: str
    messages: tuple[bytes, ...] = (b"",)
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    compression: str = ""
    timeout: float = PATIENCE
    answers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client gets: status, details, messages in their order, and metadata."""

    code: int
    details: str
    messages: tuple[bytes, ...]
    initial: tuple[tuple[str, str], ...]
    trailing: tuple[tuple[str, str], ...] = field(compare=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """What the trailers are called, without those that every answer of the gateway has."""
        return tuple(sorted(key for key, _ in self.trailing if not key.startswith("servegate-")))


def make(call: RawCall, address: str) -> Heard:
    """One call, as a stream of messages both ways: so a unary method may get none, or two."""
    with grpc.insecure_channel(address, options=_OPTIONS) as channel:
        method = channel.stream_stream(
            call.method if call.method.startswith("/") else SERVICE + call.method
        )
        come = threading.Semaphore(0)
        running = method(
            _sent(call, come),
            timeout=call.timeout,
            metadata=call.metadata,
            compression=_COMPRESSIONS[call.compression],
        )
        heard = []
        try:
            for message in running:
                heard.append(message)
                come.release()
        except grpc.RpcError:
            pass
        come.release(100)
        return Heard(
            code=running.code().value[0],
            details=running.details() or "",
            messages=tuple(heard),
            initial=_text(running.initial_metadata()),
            trailing=_text(running.trailing_metadata()),
        )


def _sent(call: RawCall, come: threading.Semaphore) -> Iterator[bytes]:
    for number, message in enumerate(call.messages):
        yield message
        for _ in range(call.answers[number] if call.answers else 0):
            come.acquire(timeout=PATIENCE)


def _text(metadata: object) -> tuple[tuple[str, str], ...]:
    return tuple((str(key), str(value)) for key, value in metadata or ())  # type: ignore[attr-defined]


def infer(
    model: str = "mirror",
    *,
    version: str = "1",
    values: Any = (3, 4),
    datatype: str = "FP32",
    shape: tuple[int, ...] | None = None,
    name: str = "",
    request_id: str = "",
    parameters: dict[str, Any] | None = None,
) -> pb.ModelInferRequest:
    """A request with one tensor; numbers in a tuple are FP32."""
    made = pb.ModelInferRequest(model_name=model, model_version=version, id=request_id)
    data = np.array(values, np.float32) if isinstance(values, tuple) else values
    dims = shape if shape is not None else (2 if isinstance(data, bytes) else len(data),)
    default = datatype if model == "mirror" else "x"
    made.inputs.add(name=name or default, datatype=datatype, shape=dims)
    made.raw_input_contents.append(data if isinstance(data, bytes) else data.tobytes())
    for key, value in (parameters or {}).items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
        setattr(made.parameters[key], kind[type(value)], value)
    return made


def unary(method: str, message: Any = b"", **more: Any) -> RawCall:
    """A call of a unary method; messages are bytes, or something that serialises."""
    return RawCall(method, (as_bytes(message),), **more)


def stream(*messages: Any, answers: tuple[int, ...] = (), **more: Any) -> RawCall:
    """A call of ModelStreamInfer."""
    return RawCall("ModelStreamInfer", tuple(map(as_bytes, messages)), answers=answers, **more)


def as_bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())
