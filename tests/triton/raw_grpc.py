"""Raw gRPC calls: bytes in, bytes out, and all that an answer says beside them."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc

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
