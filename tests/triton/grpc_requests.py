"""Raw gRPC calls of the models in `grpc_models`."""

from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from .raw_grpc import RawCall


def infer(
    model: str = "types",
    *,
    version: str = "1",
    values: Any = None,
    datatype: str = "FP32",
    shape: tuple[int, ...] | None = None,
    name: str = "",
    request_id: str = "",
    parameters: dict[str, Any] | None = None,
) -> pb.ModelInferRequest:
    """A request with one tensor; without values it is two numbers."""
    made = pb.ModelInferRequest(model_name=model, model_version=version, id=request_id)
    data = np.array([3, 4], np.float32) if values is None else values
    raw = data if isinstance(data, bytes) else np.asarray(data).tobytes()
    dims = shape if shape is not None else (2 if isinstance(data, bytes) else len(data),)
    default = "x" if model in ("repeat", "count", "gone") else f"in_{datatype}"
    made.inputs.add(name=name or default, datatype=datatype, shape=dims)
    made.raw_input_contents.append(raw)
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
