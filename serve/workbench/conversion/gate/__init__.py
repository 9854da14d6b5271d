"""The gate: whether a converted model is what the source was. numpy only; models are runners."""

from serve.workbench.conversion.gate.calibration import Division, divide
from serve.workbench.conversion.gate.input_search import Runner
from serve.workbench.conversion.gate.probes import calibration
from serve.workbench.conversion.gate.samples import (
    InputSamples,
    Labelled,
    read_labelled,
    read_samples,
)
from serve.workbench.conversion.gate.verdict import GateVerdict, run_gate

__all__ = [
    "Division",
    "GateVerdict",
    "InputSamples",
    "Labelled",
    "Runner",
    "calibration",
    "divide",
    "read_labelled",
    "read_samples",
    "run_gate",
]
