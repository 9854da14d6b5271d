"""In which precision the source itself computes: a model trained in FP16 cannot be held to FP32's.

Who reads the source's graph knows, and says it as the fact `arithmetic` of its signature: `fp16`.
Without that fact it is asked: a model that casts its inputs to FP16 answers the same, to the bit,
when they are rounded to FP16 before; one that computes in FP32 never does.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from serve.conversion.gate.input_search import Runner, ask
from serve.conversion.gate.probes import GateProbe
from serve.conversion.request import Precision
from serve.tensors.datatypes import Array
from serve.tensors.signature import ModelSignature

FACT = "arithmetic"
_SHARE = 1e-2  # by which inputs are changed to see that the answer depends on them


def arithmetic_of(
    source: Runner, signature: ModelSignature, probes: Iterable[GateProbe]
) -> Precision:
    """FP16 or FP32."""
    if FACT in signature.facts:
        is_half = signature.facts[FACT] == Precision.FP16
        return Precision.FP16 if is_half else Precision.FP32
    answers = [_is_half(source, probe.inputs) for probe in probes if probe.family == "normal"]
    return Precision.FP16 if answers and all(answers) else Precision.FP32


def _is_half(source: Runner, inputs: Mapping[str, Array]) -> bool:
    wide = [name for name, array in inputs.items() if array.dtype in (np.float32, np.float64)]
    if not wide:
        return False
    rounded = {n: inputs[n].astype(np.float16).astype(inputs[n].dtype) for n in wide}
    changed = {n: inputs[n] * inputs[n].dtype.type(1 + _SHARE) for n in wide}
    asked = (inputs, {**inputs, **rounded}, {**inputs, **changed})
    plain, half, other = (ask(source, each)[0] for each in asked)
    if plain is None or half is None or other is None:
        return False
    floats = [name for name, array in plain.items() if array.dtype.kind == "f"]
    is_same = all(np.array_equal(plain[name], half[name], equal_nan=True) for name in floats)
    is_dead = all(np.array_equal(plain[name], other[name], equal_nan=True) for name in floats)
    return is_same and not is_dead
