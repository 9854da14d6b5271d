"""What is to be converted, and how: it goes to the child process, and into the report."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.tensors.expected_outputs import Tolerance

OPSET = 18  # the highest that tf2onnx writes; every ONNX Runtime that Triton brings reads it
GENERAL = ""  # the tolerance of outputs that have none of their own
_NO_TOLERANCES: Mapping[str, Tolerance] = MappingProxyType({})


class Precision(StrEnum):
    """The data type in which the converted model computes. Inputs and outputs keep their types."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """One conversion to ONNX.

    `source`: path of a SavedModel folder, .keras, .h5 or .onnx. `signature`: its name, empty when
    the source has only one. `nchw`: inputs that the converted model takes channels first.
    `samples`: path of an .npz with one array per input, rows first; `labelled`: one with an array
    `labels` of whole numbers besides. `max_drop`: how much of the metric may be lost, as a share.
    `tolerances` by output, `GENERAL` for all others. `golden`: rows that travel as the contract.
    `accept_unverified`: publish INT8 also where no rows judge it that have not calibrated it.
    """

    source: str
    signature: str = ""
    precision: Precision = Precision.FP32
    nchw: tuple[str, ...] = ()
    samples: str = ""
    labelled: str = ""
    max_drop: float = 0.005
    tolerances: Mapping[str, Tolerance] = field(default_factory=lambda: _NO_TOLERANCES)
    golden: int = 4
    opset: int = OPSET
    max_batch_size: int | None = None
    seed: int = 0
    accept_unverified: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        page: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        page |= {"precision": str(self.precision), "nchw": list(self.nchw)}
        page["tolerances"] = {
            name: {"atol": one.atol, "rtol": one.rtol, "top1": one.top1}
            for name, one in self.tolerances.items()
        }
        return page

    @classmethod
    def from_json(cls, page: Any) -> "ConversionRequest":
        """Read what `to_json` gave; `Invalid` for anything else."""
        try:
            given = dict(page)
            given["precision"] = Precision(given.get("precision", Precision.FP32))
            given["nchw"] = tuple(map(str, given.get("nchw", ())))
            given["tolerances"] = MappingProxyType(
                {str(name): Tolerance(**one) for name, one in given.get("tolerances", {}).items()}
            )
            return cls(**given)
        except (TypeError, ValueError, AttributeError) as error:
            raise Invalid("the conversion request is malformed", why=str(error)) from error
