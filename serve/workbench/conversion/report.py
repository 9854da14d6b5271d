"""The report of a conversion, `conversion.json`: what was done, and how right the result is.

It is written by the child process, also when the gate refuses, and read by the command line, the
control plane and the renderings for people. Everything in it was measured in that conversion.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Self

from serve.core.errors import Invalid
from serve.core.versions import unverified_in
from serve.workbench.conversion.request import ConversionRequest

FILE, MODEL = "conversion.json", "model.onnx"  # in the folder of a conversion
FORMAT = 1
NOTHING: Mapping[str, Any] = MappingProxyType({})


class GateStep(StrEnum):
    """The steps of the gate, in their order."""

    DETERMINISM = "determinism"
    CONTRACT = "contract"
    NUMBERS = "numbers"
    BATCH = "batch independence"
    PRECISION = "precision"
    VERIFICATION = "verification"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far one output is off, over all samples of a step.

    `scale` is the output's own: the root mean square of what the source gives. `worst` is the
    largest |a - b|, `relative` is worst / scale, `excess` the largest |a - b| / (atol + rtol·|b|):
    above 1 the gate refuses. `top1` is the share of rows with the same highest score, None where
    the output is no row of scores. `histogram` counts elements by error / scale: `edges` are the
    powers of ten between the bins, so there is one count more than edges.
    """

    name: str
    elements: int
    scale: float
    worst: float
    mean: float
    relative: float
    excess: float
    top1: float | None = None
    edges: tuple[int, ...] = ()
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """How one step of the gate ended. `code` is a fault of the catalogue, empty when it passed."""

    step: GateStep
    passed: bool
    summary: str
    code: str = ""
    outputs: tuple[OutputError, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class ConversionStage:
    """One stage of the work, in the order of the work. `seconds` of the clock."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """One conversion. Digests are SHA-256; `peak_memory` in bytes of the child process.

    `source` and `model` are facts about the two: kind, digest, bytes, signature, opset, operators.
    `is_batched`: the first dimension is free and rows do not depend on their neighbours.
    `versions`: of Python and all packages that took part. `command` does the same again.
    """

    request: ConversionRequest
    source: Mapping[str, Any]
    model: Mapping[str, Any]
    is_batched: bool
    steps: tuple[StepResult, ...]
    stages: tuple[ConversionStage, ...]
    peak_memory: int
    versions: Mapping[str, str]
    command: str
    warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every step of the gate that was run has passed."""
        return all(step.passed for step in self.steps)

    @property
    def unverified(self) -> str:
        """Why the user has accepted a result that nothing verifies; empty for all others."""
        return unverified_in(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {
            "format": FORMAT,
            "passed": self.passed,
            "request": self.request.to_json(),
            "source": dict(self.source),
            "model": dict(self.model),
            "is_batched": self.is_batched,
            "steps": [_step_page(step) for step in self.steps],
            "stages": [asdict(each) for each in self.stages],
            "peak_memory": self.peak_memory,
            "versions": dict(self.versions),
            "command": self.command,
            "warnings": list(self.warnings),
        }

    def to_bytes(self) -> bytes:
        """The file."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, page: Any) -> Self:
        """Read what `to_json` gave; `Invalid` for anything else."""
        try:
            if page["format"] != FORMAT:
                raise ValueError(f"format {page['format']}")
            return cls(
                ConversionRequest.from_json(page["request"]),
                MappingProxyType(dict(page["source"])),
                MappingProxyType(dict(page["model"])),
                bool(page["is_batched"]),
                tuple(_step(each) for each in page["steps"]),
                tuple(ConversionStage(each["name"], each["seconds"]) for each in page["stages"]),
                int(page["peak_memory"]),
                MappingProxyType(dict(page["versions"])),
                str(page["command"]),
                tuple(map(str, page["warnings"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid("this is not a conversion report", why=repr(error)) from error


def _step_page(result: StepResult) -> dict[str, Any]:
    return {
        "step": str(result.step),
        "passed": result.passed,
        "summary": result.summary,
        "code": result.code,
        "outputs": [asdict(output) for output in result.outputs],
        "facts": dict(result.facts),
    }


def _step(page: Any) -> StepResult:
    outputs = (
        OutputError(
            **{**each, "edges": tuple(each["edges"]), "histogram": tuple(each["histogram"])}
        )
        for each in page["outputs"]
    )
    return StepResult(
        GateStep(page["step"]),
        bool(page["passed"]),
        str(page["summary"]),
        str(page["code"]),
        tuple(outputs),
        MappingProxyType(dict(page["facts"])),
    )
