"""Doing the same with NVIDIA's gRPC client, directly and through the gateway."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import tritonclient.grpc as grpc
from google.protobuf.json_format import MessageToDict
from tritonclient.utils import InferenceServerException

from .conftest import Beside

T = TypeVar("T")
PATIENCE = 20.0  # seconds; a bound
CANCELLED = ("StatusCode.CANCELLED", "Locally cancelled by application!")
TOO_LATE = ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded")


def same(beside: Beside, act: Callable[[grpc.InferenceServerClient], T]) -> T:
    """What this does through the gateway; it has to be what it does without."""
    said = []
    for address in beside.grpc:
        with grpc.InferenceServerClient(address) as client:
            said.append(act(client))
    directly, through = said
    assert through == directly
    return through


def through(beside: Beside, act: Callable[[grpc.InferenceServerClient], T]) -> T:
    """What this does through the gateway alone: Triton 2.51 may crash when its callers leave."""
    with grpc.InferenceServerClient(beside.front.grpc) as client:
        said = act(client)
    beside.front.wait_idle()
    return said


def tensor(name: str, values: np.ndarray[Any, Any]) -> grpc.InferInput:
    made = grpc.InferInput(name, list(values.shape), "FP32" if name == "x" else name)
    made.set_data_from_numpy(values)
    return made


def x(*values: float) -> list[grpc.InferInput]:
    return [tensor("x", np.array(values, np.float32))]


def read(answer: grpc.InferResult) -> dict[str, Any]:
    """Everything that an answer holds, in values that can be compared."""
    head = MessageToDict(answer.get_response())
    for output in head.get("outputs", ()):
        values = answer.as_numpy(output["name"])
        output["values"] = (values.dtype.name, values.shape, values.tolist())
    return dict(head)


def refused(act: Callable[[], object]) -> tuple[str | None, str]:
    """Status and message of the client's exception."""
    with pytest.raises(InferenceServerException) as caught:
        act()
    return caught.value.status(), caught.value.message()
