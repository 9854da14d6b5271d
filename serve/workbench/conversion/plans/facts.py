"""What a plan is: the facts that decide where it runs, and the proof of its precision.

A plan fits one version of TensorRT and one kind of GPU. So both are written down beside it, with
the image that built it, and its flavour asks a machine for them. Two options widen that: a plan
that is *version compatible* also runs on later versions of TensorRT, one that is *hardware
compatible* also on other GPUs (`ampere+`: compute capability 8.0 and later).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.core.flavours import CAPABILITY, Flavour, Needs
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.plans.profiles import Profile
from serve.workbench.conversion.request import Precision

BACKEND = "tensorrt"
_PATTERNS = {  # they become part of names, and of what machines are asked for
    "tensorrt": re.compile(r"^[0-9]{1,4}(\.[0-9]{1,4}){1,3}\Z"),
    "compute_capability": CAPABILITY,
    "sha256": re.compile(r"^[0-9a-f]{64}\Z"),
}
NO_LAYERS: Mapping[str, int] = MappingProxyType({})
_HALF = re.compile(r"\b(FP16|Half|BF16|BFloat16)\b", re.IGNORECASE)
_INT8 = re.compile(r"\bInt8\b", re.IGNORECASE)
_FULL = re.compile(r"\b(FP32|Float)\b", re.IGNORECASE)
_OTHER = "other"


class Hardware(StrEnum):
    """On which other GPUs a plan also runs, in the words of trtexec."""

    NONE = "none"
    AMPERE = "ampere+"
    SAME = "sameComputeCapability"  # other GPUs of that compute capability; TensorRT 10.9


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """One plan. `seconds` of building; `layers` counts layers by the type they compute in.

    `tensorrt` as the plan's header says it, `compute_capability` (`9.0`) and `device` of the GPU
    that it was built on, `image` where one is known, `platform` such as `linux-x86_64`, `sha256` of
    the file.
    """

    tensorrt: str
    compute_capability: str
    device: str
    precision: Precision
    sha256: str
    size: int
    image: str = ""
    platform: str = ""
    profiles: tuple[Profile, ...] = ()
    version_compatible: bool = False
    hardware: Hardware = Hardware.NONE
    tf32: bool = False
    seconds: float = 0.0
    layers: Mapping[str, int] = field(default_factory=lambda: NO_LAYERS)

    @property
    def name(self) -> str:
        """The name of its flavour: `plan-sm90`, or `plan-ampere+`."""
        if self.hardware is Hardware.AMPERE:
            return "plan-ampere+"
        return f"plan-sm{self.compute_capability.replace('.', '')}"

    @property
    def unchecked(self) -> str:
        """Why it is not known in what the plan computes; empty where it was checked."""
        if self.precision is Precision.FP32 or self.layers:
            return ""
        return (
            f"the plan was not checked for {self.precision}, because TensorRT lists no layer types;"
            " its ONNX file was checked"
        )

    @property
    def file(self) -> str:
        """Its file in the version folder; every flavour has one of its own."""
        return f"model.{self.name.replace('+', '-plus')}.plan"

    @property
    def needs(self) -> Needs:
        """What a machine must have to run it.

        A plan that is version compatible runs on its own and later versions; an earlier one of the
        same major number refuses it at the load, which then falls back to the next flavour.
        """
        version = self.tensorrt
        if self.version_compatible:
            version = version.partition(".")[0]
        capability = "8.0+" if self.hardware is Hardware.AMPERE else self.compute_capability
        return Needs(gpu=True, compute_capability=(capability,), tensorrt=(version,))

    def flavour(self, config: Mapping[str, Any]) -> Flavour:
        """The entry of flavours.json; `config` as in `core/flavours.py`."""
        return Flavour(self.name, self.needs, self.file, BACKEND, config)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        page = {each.name: getattr(self, each.name) for each in fields(self)}
        page |= {"precision": str(self.precision), "hardware": str(self.hardware)}
        page |= {"layers": dict(self.layers)}
        page["profiles"] = [each.to_json() for each in self.profiles]
        return page

    @classmethod
    def from_json(cls, page: Any) -> "PlanFacts":
        """Read what `to_json` gave; `Invalid` for anything else."""
        try:
            given = dict(page)
            given["precision"] = Precision(given["precision"])
            given["hardware"] = Hardware(given["hardware"])
            given["profiles"] = tuple(map(Profile.from_json, given["profiles"]))
            given["layers"] = MappingProxyType(
                {str(name): int(count) for name, count in given["layers"].items()}
            )
            for name, pattern in _PATTERNS.items():
                if not pattern.match(given[name]):
                    raise ValueError(f"{name} cannot be '{given[name][:80]}'")
            return cls(**given)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid("the facts of the plan are malformed", why=repr(error)) from error


def layers_of(text: str) -> Mapping[str, int]:
    """Layers by the type that they give, out of what TensorRT's engine inspector says as JSON.

    `fp16`, `int8`, `fp32` and `other`. Layers are counted by their first output, whose `Datatype`
    or `Format/Datatype` tells the type. Empty where the inspector tells no type at all, as it does
    of names alone, and of shapes that nobody has fixed.
    """
    try:
        listed = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError):
        return NO_LAYERS
    counts: dict[str, int] = {}
    for layer in listed if isinstance(listed, list) else ():
        if isinstance(layer, dict):
            kind = _type_of(layer)
            counts[kind] = counts.get(kind, 0) + 1
    return MappingProxyType(counts) if counts.keys() - {_OTHER} else NO_LAYERS


def require_precision(wanted: Precision, layers: Mapping[str, int]) -> None:
    """`precision_missing` when a plan does not compute in what was asked for at all.

    Without layers nothing is known: `Facts.unchecked` says so. trtexec lists none for free shapes
    when it is told to build only.
    """
    if not layers or wanted is Precision.FP32 or layers.get(str(wanted), 0):
        return
    found = ", ".join(f"{count} in {kind}" for kind, count in sorted(layers.items()))
    raise failed(
        "precision_missing", f"no layer of the plan computes in {wanted}; its layers: {found}"
    )


def _type_of(layer: Mapping[str, Any]) -> str:
    tensors = [*(layer.get("Outputs") or ()), *(layer.get("Inputs") or ())]
    words = [
        str(tensor.get("Datatype") or tensor.get("Format/Datatype") or "")
        for tensor in tensors
        if isinstance(tensor, dict)
    ]
    for word in words:
        for kind, pattern in (("int8", _INT8), ("fp16", _HALF), ("fp32", _FULL)):
            if pattern.search(word):
                return kind
    return _OTHER
