"""Whole infer messages: tensors by name ⇄ the HTTP body with binary data, and the gRPC message.

An HTTP body is a JSON head and behind it, without a gap, the raw bytes of each tensor whose head
says `binary_data_size`, in the order of the head. The header `Inference-Header-Content-Length`
says where the head ends; without it the whole body is JSON. In gRPC the raw bytes of all tensors
stand in `raw_input_contents` and `raw_output_contents`, in the order of `inputs` and `outputs`.
Source: Triton's binary tensor data extension, and `grpc_service.proto`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from serve.core.errors import Invalid, ServegateError, TritonFailed
from serve.tensors.datatypes import Array, Shape, datatype_of, from_json, from_raw, to_raw
from serve.wire import protobuf

HEAD_LENGTH_HEADER = "Inference-Header-Content-Length"
_NONE: Mapping[str, str] = MappingProxyType({})


class MalformedReply(ServegateError):
    """An infer reply that breaks the protocol: the server's fault, not the caller's."""

    code = "malformed_reply"


@dataclass(frozen=True, slots=True)
class HttpInferRequest:
    """The body of an infer request. `head_length`, in bytes, is the value of the header."""

    body: bytes
    head_length: int

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the body needs beside its Content-Length."""
        return {
            "Content-Type": "application/octet-stream",
            HEAD_LENGTH_HEADER: str(self.head_length),
        }


@dataclass(frozen=True, slots=True)
class InferReply:
    """The tensors of a reply and their datatypes; `version` as the server wrote it, or empty."""

    model: str
    version: str
    outputs: Mapping[str, Array]
    datatypes: Mapping[str, str]


def http_request(
    inputs: Mapping[str, Array], datatypes: Mapping[str, str] = _NONE
) -> HttpInferRequest:
    """An infer request whose tensors are binary and that asks for binary outputs.

    A tensor that `datatypes` does not name has the datatype of its array, see `datatype_of`.
    """
    heads, parts = [], []
    for name, array in inputs.items():
        datatype = datatypes.get(name) or datatype_of(array, name)
        raw = to_raw(array, datatype, name)
        heads.append(
            {
                "name": name,
                "shape": list(array.shape),
                "datatype": datatype,
                "parameters": {"binary_data_size": len(raw)},
            }
        )
        parts.append(raw)
    document = {"inputs": heads, "parameters": {"binary_data_output": True}}
    head = json.dumps(document, separators=(",", ":")).encode()
    return HttpInferRequest(b"".join((head, *parts)), len(head))


def read_http_reply(body: bytes, head_length: int | None = None) -> InferReply:
    """The tensors of an infer reply; outputs may be binary or JSON. `MalformedReply` if broken."""
    length = len(body) if head_length is None else head_length
    if not 0 <= length <= len(body):
        raise _broken(f"its head of {length} bytes is longer than the body of {len(body)}")
    try:
        head = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise _broken(f"its head is not JSON: {error}") from error
    outputs: dict[str, Array] = {}
    datatypes: dict[str, str] = {}
    position = length
    for item in _list(head, "outputs"):
        name, datatype, shape = _described(item, outputs)
        size = _binary_size(item, name)
        if size is not None and position + size > len(body):
            left = len(body) - position
            raise _broken(f"output '{name}' needs {size} bytes, and {left} are left")
        datatypes[name] = datatype
        try:
            if size is None:
                outputs[name] = from_json(_field(item, "data", list), datatype, shape, name)
            else:
                raw = memoryview(body)[position : position + size]
                outputs[name] = from_raw(raw, datatype, shape, name)
                position += size
        except Invalid as error:
            raise _broken(str(error)) from error
    if position != len(body):
        raise _broken(f"{len(body) - position} bytes follow its last output")
    return _reply(head.get("model_name"), head.get("model_version"), outputs, datatypes)


def read_http_request(body: bytes, head_length: int | None = None) -> InferReply:
    """The inputs of an infer request, in the place of outputs, whose form they have.

    `Invalid` or `MalformedReply` if broken.
    """
    length = len(body) if head_length is None else head_length
    try:
        head = json.dumps({"outputs": json.loads(body[:length])["inputs"]}).encode()
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise Invalid("the infer request cannot be read", why=str(error)) from error
    return read_http_reply(head + body[length:], len(head))


def grpc_request(
    model: str,
    inputs: Mapping[str, Array],
    *,
    version: str = "",
    datatypes: Mapping[str, str] = _NONE,
) -> bytes:
    """A serialized `ModelInferRequest`; `version`: a number, a label for the gateway, or empty."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name=model, model_version=version)
    for name, array in inputs.items():
        datatype = datatypes.get(name) or datatype_of(array, name)
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_input_contents.append(to_raw(array, datatype, name))
    serialized: bytes = message.SerializeToString()
    return serialized


def read_grpc_request(body: bytes) -> InferReply:
    """The inputs of a serialized `ModelInferRequest`; see `read_http_request`."""
    from google.protobuf.message import DecodeError
    from tritonclient.grpc import service_pb2

    request, reply = service_pb2.ModelInferRequest(), service_pb2.ModelInferResponse()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise Invalid("the infer request cannot be read", why=str(error)) from error
    for one in request.inputs:
        reply.outputs.add(
            name=one.name, datatype=one.datatype, shape=one.shape, contents=one.contents
        )
    reply.raw_output_contents.extend(request.raw_input_contents)
    return read_grpc_reply(reply.SerializeToString())


def read_grpc_reply(body: bytes) -> InferReply:
    """The tensors of a serialized `ModelInferResponse`; `MalformedReply` if broken."""
    from google.protobuf.message import DecodeError
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferResponse()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise _broken(f"it is not a ModelInferResponse: {error}") from error
    if len(message.outputs) != len(message.raw_output_contents):
        raise _broken(
            f"it describes {len(message.outputs)} outputs "
            f"and has the raw contents of {len(message.raw_output_contents)} outputs"
        )
    outputs: dict[str, Array] = {}
    datatypes: dict[str, str] = {}
    for item, raw in zip(message.outputs, message.raw_output_contents, strict=True):
        described = {"name": item.name, "datatype": item.datatype, "shape": list(item.shape)}
        name, datatype, shape = _described(described, outputs)
        datatypes[name] = datatype
        try:
            outputs[name] = from_raw(raw, datatype, shape, name)
        except Invalid as error:
            raise _broken(str(error)) from error
    return _reply(message.model_name, message.model_version, outputs, datatypes)


def read_grpc_stream(bodies: Sequence[bytes]) -> InferReply:
    """The serialized `ModelStreamInferResponse`s to one request, as one reply.

    The parts of an output are joined along its last axis. `TritonFailed` for an error in the
    stream, `MalformedReply` if something is broken.
    """
    replies = []
    for body in bodies:
        try:
            fields = dict(protobuf.fields(body))
        except ValueError as error:
            raise _broken(f"it is not a ModelStreamInferResponse: {error}") from error
        if sentence := fields.get(1):
            raise TritonFailed(bytes(sentence).decode("utf-8", "replace"))
        replies.append(read_grpc_reply(bytes(fields.get(2, b""))))
    if not replies:
        raise _broken("the stream ended without a response")
    outputs: dict[str, list[Array]] = {}
    for reply in replies:
        for name, array in reply.outputs.items():
            outputs.setdefault(name, []).append(array)
    datatypes = {name: kind for reply in replies for name, kind in reply.datatypes.items()}
    joined = {name: _joined(parts) for name, parts in outputs.items()}
    return _reply(replies[0].model, replies[0].version, joined, datatypes)


def _joined(parts: Sequence[Array]) -> Array:
    """All parts, or the last one of what cannot be joined."""
    shapes = {part.shape[:-1] for part in parts}
    can_be = len(shapes) == 1 and parts[0].ndim > 0
    return np.concatenate(parts, axis=-1) if can_be else parts[-1]


def _reply(
    model: object, version: object, outputs: dict[str, Array], datatypes: dict[str, str]
) -> InferReply:
    return InferReply(
        model=model if isinstance(model, str) else "",
        version=version if isinstance(version, str) else "",
        outputs=MappingProxyType(outputs),
        datatypes=MappingProxyType(datatypes),
    )


def _described(item: Any, known: Mapping[str, Array]) -> tuple[str, str, Shape]:
    """Name, datatype and shape of one output."""
    name: str = _field(item, "name", str)
    if name in known:
        raise _broken(f"it has output '{name}' twice")
    shape = _field(item, "shape", list)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise _broken(f"output '{name}' has the shape {shape}")
    return name, _field(item, "datatype", str), tuple(shape)


def _binary_size(item: dict[str, Any], name: str) -> int | None:
    """How many bytes behind the head are this output's; None when its data is in the head."""
    parameters = item.get("parameters", {})
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise _broken(f"output '{name}' has the binary_data_size {size!r}")
    return size


def _list(head: Any, key: str) -> list[Any]:
    found: list[Any] = _field(head, key, list)
    return found


def _field(item: Any, key: str, kind: type) -> Any:
    if not isinstance(item, dict) or not isinstance(item.get(key), kind):
        named = f" of '{item['name']}'" if isinstance(item, dict) and "name" in item else ""
        raise _broken(f"'{key}'{named} is missing or not of type {kind.__name__}")
    return item[key]


def _broken(why: str) -> MalformedReply:
    return MalformedReply("the infer response cannot be read", why=why)
