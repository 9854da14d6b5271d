"""Warm-up calls: inputs that are made up for a version which has no contract.

Only for backends that run a graph and nothing else. Zeros are an index into any table and a part of
any vocabulary; a model that does not like them says so, and is none the worse for it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2

from serve.tensors.datatypes import BYTES, DATATYPES, Array, Shape, numpy_dtype
from serve.triton.config import Configuration

_GRAPHS = frozenset({"onnxruntime", "tensorrt", "pytorch", "openvino"})
_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "pytorch_libtorch": "pytorch",
}
_MOST_BYTES = 64 << 20
_MOST_INSTANCES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Blank:
    """Inputs of one call, and their datatypes."""

    inputs: Mapping[str, Array]
    datatypes: Mapping[str, str]


def blank(config: Configuration, signature: Mapping[str, Any]) -> Blank | None:
    """Zeros in the shapes of the configuration, or else of the signature, free sizes being 1.

    None where nothing should be made up, or the shapes are not known.
    """
    message = config.message
    if _PLATFORMS.get(message.platform, message.backend) not in _GRAPHS:
        return None
    batch = (1,) if message.max_batch_size > 0 else ()
    wanted: dict[str, tuple[str, Shape | None]] = {
        item.name: (_datatype(item.data_type), (*batch, *item.dims))
        for item in message.input
        if not item.optional
    } or {
        str(item["name"]): (str(item["datatype"]), _shape(item["shape"]))
        for item in signature.get("inputs", ())
    }
    inputs: dict[str, Array] = {}
    size = 0
    for name, (datatype, shape) in wanted.items():
        if shape is None or datatype not in DATATYPES:
            return None
        sizes = tuple(length if length >= 0 else 1 for length in shape)
        size += math.prod(sizes) * 8
        if size > _MOST_BYTES:
            return None
        inputs[name] = np.full(sizes, b"" if datatype == BYTES else 0, numpy_dtype(datatype))
    datatypes = {name: datatype for name, (datatype, _) in wanted.items()}
    return Blank(inputs, datatypes) if inputs else None


def instances(config: Configuration) -> int:
    """About how many instances there are: so many calls at once reach each of them."""
    groups = config.message.instance_group
    count = sum((group.count or 1) * (len(group.gpus) or 1) for group in groups)
    return min(max(count, 1), _MOST_INSTANCES)


def _datatype(data_type: int) -> str:
    name: str = model_config_pb2.DataType.Name(data_type).removeprefix("TYPE_")
    return BYTES if name == "STRING" else name


def _shape(sizes: Any) -> Shape | None:
    return None if sizes is None else tuple(int(size) for size in sizes)
