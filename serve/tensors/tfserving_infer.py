"""Infer calls in Triton's HTTP form, binary both ways, with the tensors of `tfserving`.

What `codec` does with arrays for people's own programs, done for a worker, which has no numpy.
Source: Triton's binary tensor data extension, and its classification extension.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.core.errors import BadRequest, ServegateError
from serve.tensors.tfserving_tensors import BYTES, RawTensor, item_size, pack


@dataclass(frozen=True, slots=True)
class InferBody:
    """The body of an infer request: its JSON head, and the tensors."""

    head: bytes
    tensors: tuple[bytes, ...]


def infer_body(
    inputs: Mapping[str, RawTensor], outputs: Sequence[str] = (), *, classes: int = 0
) -> InferBody:
    """A request for these outputs, or for all; with `classes` as so many of the best classes."""
    described = [
        {
            "name": name,
            "shape": list(tensor.shape),
            "datatype": tensor.datatype,
            "parameters": {"binary_data_size": len(tensor.raw)},
        }
        for name, tensor in inputs.items()
    ]
    document: dict[str, Any] = {"inputs": described}
    if outputs:
        wanted = {"binary_data": True} | ({"classification": classes} if classes else {})
        document["outputs"] = [{"name": name, "parameters": wanted} for name in outputs]
    else:
        document["parameters"] = {"binary_data_output": True}
    head = json.dumps(document, separators=(",", ":")).encode()
    return InferBody(head, tuple(tensor.raw for tensor in inputs.values()))


def read_outputs(body: bytes, head_length: int | None) -> dict[str, RawTensor]:
    """The outputs of an answer, in its order; an error of ours when Triton's answer is broken."""
    length = len(body) if head_length is None else head_length
    outputs: dict[str, RawTensor] = {}
    try:
        position = length
        for item in json.loads(body[:length])["outputs"]:
            datatype, shape = str(item["datatype"]), tuple(int(size) for size in item["shape"])
            size = item.get("parameters", {}).get("binary_data_size")
            if size is None:
                raw = _from_json(item["data"], datatype)
            else:
                raw = body[position : position + size]
                position += size
            wanted = math.prod(shape) * item_size(datatype)
            if wanted and len(raw) != wanted:
                raise ValueError(f"an output of {len(raw)} bytes, not {wanted}")
            outputs[str(item["name"])] = RawTensor(datatype, shape, raw)
        if position != len(body):
            raise ValueError(f"it has {len(body)} bytes, and describes {position}")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, BadRequest) as error:
        raise ServegateError("Triton's response cannot be read", why=repr(error)) from error
    return outputs


def written(
    write: Callable[[Mapping[str, RawTensor]], bytes], body: bytes, head_length: int | None
) -> bytes:
    """What `write` makes of an answer's outputs."""
    return write(read_outputs(body, head_length))


def _from_json(data: list[Any], datatype: str) -> bytes:
    """An output that came as JSON all the same, as empty ones may."""
    return pack([each.encode() for each in data] if datatype == BYTES else data, datatype)
