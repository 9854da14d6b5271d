"""A signature: the inputs and outputs that a model file says it has, whatever its format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid

DYNAMIC = -1


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """One input or output. `datatype` in Triton's words (FP32, INT64, BYTES, …).

    `shape` holds the batch dimension where there is one, -1 for a dimension that is known only at
    run time, and is None when even the number of dimensions is unknown.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] | None

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        shape = None if self.shape is None else list(self.shape)
        return {"name": self.name, "datatype": self.datatype, "shape": shape}


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """What a model file takes and gives. `format` is `onnx`, `savedmodel` or `plan`.

    `facts` are further findings for people and lint: opset, producer, operators, TensorRT version.
    """

    format: str
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {
            "format": self.format,
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, data: Any) -> "ModelSignature":
        """Read what `to_json` gave; `Invalid` for anything else."""
        try:
            return cls(
                str(data["format"]),
                tuple(_spec(item) for item in data["inputs"]),
                tuple(_spec(item) for item in data["outputs"]),
                MappingProxyType(dict(data["facts"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid("the signature is malformed", why=repr(error)) from error


def _spec(item: Any) -> ModelTensor:
    shape = item["shape"]
    return ModelTensor(
        str(item["name"]),
        str(item["datatype"]),
        None if shape is None else tuple(int(size) for size in shape),
    )
