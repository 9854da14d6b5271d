"""The golden cases: inputs and the source's answers, which travel with the version.

They are judged by `serve.tensors.expected_outputs` on every replica, also on GPUs that multiply in
TF32. So
they are looser than the gate, and show a wrong file, a wrong build or a wrong wire.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.contracts import MOST_BYTES, Case, judge, write_contract
from serve.tensors.datatypes import BF16, Array
from serve.tensors.expected_outputs import Tolerance
from serve.tensors.signature import ModelSignature
from serve.workbench.conversion.gate.families import CALIBRATING
from serve.workbench.conversion.gate.input_search import Runner, SourceRange, ask, inputs_for
from serve.workbench.conversion.gate.interface import channels_first
from serve.workbench.conversion.gate.rules import NO_NORM, Norm, PrecisionRule, gap, tolerance_of
from serve.workbench.conversion.gate.samples import InputSamples
from serve.workbench.conversion.gate.shapes import Size
from serve.workbench.conversion.request import ConversionRequest

ZEROS = "zeros"  # the name of the last case
_MOST = MOST_BYTES // 2  # bytes in memory of all cases
_AT_LEAST = 2.0  # times what the converted model is off


def cases(
    source: Runner,
    converted: Runner,
    signature: ModelSignature,
    *,
    reach: SourceRange,
    norms: Mapping[str, Norm],
    request: ConversionRequest,
    rule: PrecisionRule,
    samples: Sequence[InputSamples],
    is_batched: bool,
) -> tuple[Case, ...]:
    """`request.golden` cases of one row each, the user's samples first, and one of zeros.

    What the source does not take or answers with NaN is left out, and what the converted model may
    answer otherwise, as whole numbers that a rounding changes. `converted` takes the source's
    inputs; the cases hold those of the converted model.
    """
    datatypes = {spec.name: BF16 for spec in signature.inputs if spec.datatype == BF16}
    maker = _Maker(source, converted, norms, request, rule, is_batched, MappingProxyType(datatypes))
    found: list[Case] = []
    left = _MOST
    for label, inputs in _inputs(signature, reach, request, samples):
        if len(found) >= request.golden + (label == ZEROS):
            continue
        case = maker.case(label, inputs)
        if case is not None and case.size <= left:
            found.append(case)
            left -= case.size
    return tuple(found)


def on_the_wire(tensors: Mapping[str, Array], *, is_batched: bool) -> Mapping[str, Array]:
    """Tensors with the shapes that they have in Triton (see `serve.triton.config_generation`).

    Triton has no tensor without dimensions, and with batches none without one besides the rows.
    """
    least = 2 if is_batched else 1
    return MappingProxyType(
        {
            name: one if one.ndim >= least else one.reshape(*one.shape, 1)
            for name, one in tensors.items()
        }
    )


def _inputs(
    signature: ModelSignature,
    reach: SourceRange,
    request: ConversionRequest,
    samples: Sequence[InputSamples],
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    for one in samples:
        for place in range(min(one.count, request.golden)):
            yield f"sample {place}", one.part(place, place + 1)
    size = Size(1, reach.lengths[0])
    for number in range(request.golden * 2):
        family = CALIBRATING[number % len(CALIBRATING)]
        rng = np.random.default_rng([request.seed, 6, number])
        yield f"{family} {number}", inputs_for(signature, reach, size, family, rng)
    rng = np.random.default_rng([request.seed, 6])
    yield ZEROS, inputs_for(signature, reach, size, "zeros", rng)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes a case of inputs, when it is one that the converted model answers rightly."""

    source: Runner
    converted: Runner
    norms: Mapping[str, Norm]
    request: ConversionRequest
    rule: PrecisionRule
    is_batched: bool
    datatypes: Mapping[str, str]  # of inputs that numpy does not tell

    def case(self, label: str, inputs: Mapping[str, Array]) -> Case | None:
        expected, got = ask(self.source, inputs)[0], ask(self.converted, inputs)[0]
        if expected is None or got is None:  # the numbers step has judged that
            return None
        floats = {name: one for name, one in expected.items() if one.dtype.kind == "f"}
        if not all(np.isfinite(one).all() for one in floats.values()):
            return None
        tolerances = {name: self._tolerance(name, one, got[name]) for name, one in floats.items()}
        case = Case(
            on_the_wire(channels_first(inputs, self.request.nchw), is_batched=self.is_batched),
            on_the_wire(expected, is_batched=self.is_batched),
            label,
            tolerances=MappingProxyType(tolerances),
            datatypes=self.datatypes,
        )
        try:
            write_contract((case,))
        except Invalid:  # too large, or a text that no archive keeps
            return None
        return None if judge(case, on_the_wire(got, is_batched=self.is_batched)) else case

    def _tolerance(self, name: str, expected: Array, got: Array) -> Tolerance:
        said = tolerance_of(self.request, name)
        scale = self.norms.get(name, NO_NORM).scale(expected.astype(np.float64))
        atol = max(self.rule.loose * float(np.median(scale)), said.atol or 0.0)
        if got.shape == expected.shape:
            far = float(gap(got, expected).max(initial=0.0))
            atol = max(atol, _AT_LEAST * far) if np.isfinite(far) else atol
        return Tolerance(atol, max(self.rule.loose, said.rtol or 0.0))
