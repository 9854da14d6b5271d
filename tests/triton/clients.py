"""What tests do with NVIDIA's clients, which are one module for each protocol."""

from types import ModuleType
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def tensor(module: ModuleType, name: str, values: Any) -> Any:
    """The input `name`, which is called after its datatype, or x."""
    made = module.InferInput(name, list(values.shape), "FP32" if name == "x" else name)
    made.set_data_from_numpy(values)
    return made


def x(module: ModuleType, *values: float) -> list[Any]:
    return [tensor(module, "x", np.array(values, np.float32))]


def plain(answer: Any) -> Any:
    """An answer of either protocol, in the same words."""
    if isinstance(answer, Message):
        return MessageToDict(answer, preserving_proto_field_name=True)
    return answer


def read(answer: Any) -> dict[str, Any]:
    """Everything that an answer holds, in values that can be compared."""
    head = plain(answer.get_response())
    for output in head.get("outputs", ()):
        values = answer.as_numpy(output["name"])
        output["values"] = (values.dtype.name, values.shape, values.tolist())
    return dict(head)
