"""The requests that are measured: KServe v2 over HTTP (JSON or binary tensors) and over gRPC."""

import json
import struct
from dataclasses import dataclass

from loadtests.bench.keys import CREDENTIAL

VALUE = 1.5  # of every element, so a JSON tensor's length depends on the size alone


@dataclass(frozen=True, slots=True)
class Payload:
    """One request body and the header fields that go with it."""

    body: bytes
    fields: tuple[tuple[str, str], ...]


def json_tensor(size: int) -> Payload:
    """A tensor of `size` bytes written as JSON numbers."""
    tensor = {**_tensor(size), "data": [VALUE] * _elements(size)}
    fields = (("Content-Type", "application/json"), CREDENTIAL)
    return Payload(_compact({"inputs": [tensor]}), fields)


def binary_tensor(size: int) -> Payload:
    """A tensor of `size` raw bytes behind a JSON head (the binary tensor extension)."""
    raw = struct.pack("<f", VALUE) * _elements(size)
    return binary_request(raw)


def binary_request(raw: bytes) -> Payload:
    """The same for given bytes, a whole number of FP32 elements."""
    tensor = {**_tensor(len(raw)), "parameters": {"binary_data_size": len(raw)}}
    head = _compact({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    fields = (
        ("Content-Type", "application/octet-stream"),
        ("Inference-Header-Content-Length", str(len(head))),
        CREDENTIAL,
    )
    return Payload(head + raw, fields)


def grpc_message(size: int, model: str = "null") -> bytes:
    """A length-prefixed `ModelInferRequest`, its tensor in `raw_input_contents`.

    Numbers of the fields: grpc_service.proto of Triton. The name stands first, as every protobuf
    serializer writes it.
    """
    tensor = _field(1, b"x") + _field(2, b"FP32") + _field(3, _varint(1) + _varint(_elements(size)))
    raw = struct.pack("<f", VALUE) * _elements(size)
    message = _field(1, model.encode()) + _field(5, tensor) + _field(7, raw)
    return prefixed(message)


def grpc_answer() -> bytes:
    """A length-prefixed `ModelInferResponse`: y = [[1, 2, 3, 4]] of version 1 of `null`."""
    tensor = _field(1, b"y") + _field(2, b"FP32") + _field(3, _varint(1) + _varint(4))
    raw = struct.pack("<4f", 1, 2, 3, 4)
    return prefixed(_field(1, b"null") + _field(2, b"1") + _field(5, tensor) + _field(6, raw))


def prefixed(message: bytes) -> bytes:
    """A gRPC message on the wire: not compressed, four bytes of length."""
    return b"\0" + struct.pack(">I", len(message)) + message


def _elements(size: int) -> int:
    return max(1, size // 4)


def _tensor(size: int) -> dict[str, object]:
    return {"name": "x", "datatype": "FP32", "shape": [1, _elements(size)]}


def _compact(page: object) -> bytes:
    return json.dumps(page, separators=(",", ":")).encode()


def _varint(number: int) -> bytes:
    groups = []
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content
