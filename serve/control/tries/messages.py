"""A call's tensors as they are kept, and as requests that anybody can send again.

They are kept as the body of an infer request with binary tensors, and before it the length of its
JSON head (8 bytes, big-endian). It holds every datatype exactly, and can be sent as it is.
"""

import base64
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from serve.core.errors import NotFound
from serve.tensors import codec
from serve.tensors.archive import write_archive
from serve.tensors.codec import HttpInferRequest
from serve.tensors.datatypes import BF16, BYTES, Array, to_json, to_raw

MOST = 64 << 20  # bytes of what is kept of one side of a try
_LENGTH = struct.Struct(">Q")
_BINARY_ONLY = ("FP16", BF16)  # Triton reads and writes them in no other form
Tensors = Mapping[str, Array]
Datatypes = Mapping[str, str]


def pack(tensors: Tensors, datatypes: Datatypes) -> bytes | None:
    """What is kept; None for more than `MOST` bytes."""
    request = codec.http_request(tensors, datatypes)
    data = _LENGTH.pack(request.head_length) + request.body
    return data if len(data) <= MOST else None


def unpack(data: bytes) -> tuple[Tensors, Datatypes]:
    """The tensors and their datatypes."""
    request = request_of(data)
    read = codec.read_http_request(request.body, request.head_length)
    return read.outputs, read.datatypes


def request_of(data: bytes) -> HttpInferRequest:
    """What is kept, as a request that can be sent."""
    return HttpInferRequest(data[_LENGTH.size :], _LENGTH.unpack_from(data)[0])


def why_not_json(tensors: Tensors, datatypes: Datatypes, answered: Datatypes) -> str:
    """Why these tensors cannot be sent as JSON and answered so; empty when they can be."""
    for name, datatype in {**answered, **datatypes}.items():
        if datatype in _BINARY_ONLY:
            return f"'{name}' is {datatype}, which Triton does not support in JSON"
    for name, array in tensors.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"'{name}' has NaN or infinite values, which JSON cannot represent"
        if datatypes[name] == BYTES and not all(map(_is_text, array.ravel().tolist())):
            return f"'{name}' has bytes that are not UTF-8 text"
    return ""


def json_request(tensors: Tensors, datatypes: Datatypes) -> dict[str, Any]:
    """The KServe v2 request as JSON alone; every number comes back as it was."""
    return {
        "inputs": [
            {
                "name": name,
                "shape": list(array.shape),
                "datatype": datatypes[name],
                "data": _short(array),
            }
            for name, array in tensors.items()
        ]
    }


def grpc_json(model: str, selector: str, tensors: Tensors, datatypes: Datatypes) -> dict[str, Any]:
    """The `ModelInferRequest` in protobuf's JSON, tensors as base64 of their raw bytes."""
    version = {"model_version": selector} if selector else {}
    return {
        "model_name": model,
        **version,
        "inputs": [
            {"name": name, "datatype": datatypes[name], "shape": list(array.shape)}
            for name, array in tensors.items()
        ],
        "raw_input_contents": [
            base64.b64encode(to_raw(array, datatypes[name], name)).decode()
            for name, array in tensors.items()
        ],
    }


def archive(tensors: Tensors) -> bytes:
    """The tensors as an NPZ file; `Invalid` for texts that numpy cannot keep."""
    return write_archive(tensors, most=MOST)


def not_kept(what: str) -> NotFound:
    """The error for tensors that were too large."""
    return NotFound(f"{what} were not stored", why=f"they exceed {MOST >> 20} MiB")


def _short(array: Array) -> Any:
    """Nested lists; float32 as the shortest decimal that is the same float32."""
    if array.dtype != np.float32 or not array.size:
        return to_json(array)
    short = np.array([float(str(one)) for one in array.ravel()]).reshape(array.shape)
    is_same = np.array_equal(short.astype(np.float32), array)
    return short.tolist() if is_same else to_json(array)


def _is_text(element: bytes) -> bool:
    try:
        element.decode()
    except UnicodeDecodeError:
        return False
    return True
