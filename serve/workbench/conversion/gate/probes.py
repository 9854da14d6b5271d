"""All inputs that a gate tries: the user's samples first, then generated ones, then the edges.

Ordinary families come at several numbers of rows and lengths; the edges once each. The same seed
gives the same inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from zlib import crc32

import numpy as np

from serve.tensors.datatypes import Array, numpy_dtype
from serve.tensors.signature import ModelSignature
from serve.workbench.conversion.gate.families import CALIBRATING, EDGES, ORDINARY
from serve.workbench.conversion.gate.input_search import (
    MODEST,
    Runner,
    SourceRange,
    explore,
    inputs_for,
)
from serve.workbench.conversion.gate.samples import InputSamples
from serve.workbench.conversion.gate.shapes import Size, has_free_rows, is_picture

ROWS = (1, 2, 3, 7)
FEW = 3  # rows of an edge
USUAL_BATCH = 8  # unless the user says how large batches become
USER_ROWS = 32
USER = "samples"
_MOST_BYTES = 64 << 20  # of the inputs of one generated call
_CALIBRATION_CALLS = 16


@dataclass(frozen=True, slots=True, eq=False)
class GateProbe:
    """One call. `family` is `samples` for the user's own."""

    label: str
    family: str
    inputs: Mapping[str, Array]

    @property
    def is_users(self) -> bool:
        """Whether these are the user's samples, which must work."""
        return self.family == USER

    @property
    def is_ordinary(self) -> bool:
        """Whether a model in use could meet such values."""
        return self.is_users or self.family in ORDINARY


def ordinary_families(signature: ModelSignature) -> tuple[str, ...]:
    """The families whose values the inputs have in all likelihood."""
    floats = [spec for spec in signature.inputs if numpy_dtype(spec.datatype).kind == "f"]
    is_pictures = any(is_picture(spec) for spec in floats)
    return ORDINARY if is_pictures else tuple(name for name in ORDINARY if name != "pixels")


def probes(
    signature: ModelSignature,
    reach: SourceRange,
    *,
    samples: Sequence[InputSamples],
    seed: int,
    largest: int | None = None,
) -> Iterator[GateProbe]:
    """One after the other, so that only one is in memory. `largest`: of a batch."""
    for one in samples:
        for number, inputs in enumerate(one.calls(USER_ROWS)):
            yield GateProbe(f"{USER}, call {number}", USER, inputs)
    for family, size in _plan(signature, reach, largest):
        label = f"{family}, {_said(size, signature)}"
        rng = np.random.default_rng([seed, crc32(label.encode())])
        yield GateProbe(label, family, inputs_for(signature, reach, size, family, rng))


def count_probes(
    signature: ModelSignature,
    reach: SourceRange,
    *,
    samples: Sequence[InputSamples],
    largest: int | None = None,
) -> int:
    """How many there are."""
    users = sum(one.count_calls(USER_ROWS) for one in samples)
    return users + sum(1 for _ in _plan(signature, reach, largest))


def ordinary(
    signature: ModelSignature, reach: SourceRange, *, samples: Sequence[InputSamples], seed: int
) -> Iterator[GateProbe]:
    """A few typical inputs: the user's first ones, and one call of each ordinary family.

    And one of the small family, which shows a softmax that is not yet sure.
    """
    for one in samples:
        yield GateProbe(USER, USER, next(iter(one.calls(USER_ROWS))))
    for family in (*ordinary_families(signature), "small"):
        rng = np.random.default_rng([seed, crc32(family.encode())])
        size = Size(_fitting(signature, reach, ROWS[-1]), reach.lengths[0])
        yield GateProbe(family, family, inputs_for(signature, reach, size, family, rng))


def modest(signature: ModelSignature, reach: SourceRange, *, seed: int) -> Iterator[GateProbe]:
    """What was taken when the source was explored, if nothing else is."""
    for family in MODEST:
        rng = np.random.default_rng([seed, crc32(family.encode())])
        yield GateProbe(family, family, inputs_for(signature, reach, reach.size, family, rng))


def calibration(
    samples: InputSamples | None, signature: ModelSignature, seed: int, source: Runner | None = None
) -> Sequence[Mapping[str, Array]]:
    """Inputs that show which values a model meets: the user's samples, else ordinary ones.

    With the source, ids reach over whole tables; without it they are 0 and 1, which always exist.
    """
    if samples is not None:
        return tuple(samples.calls(USER_ROWS))
    reach = SourceRange(limits={spec.name: 1 for spec in signature.inputs})
    if source is not None:
        reach = explore(source, signature, seed)
    size = Size(_fitting(signature, reach, USUAL_BATCH), reach.lengths[0])
    return tuple(
        inputs_for(signature, reach, size, family, np.random.default_rng([seed, number]))
        for number in range(_CALIBRATION_CALLS // len(CALIBRATING))
        for family in CALIBRATING
    )


def _plan(
    signature: ModelSignature, reach: SourceRange, largest: int | None
) -> Iterator[tuple[str, Size]]:
    """Each family with the sizes that it is tried at."""
    lengths, *further = reach.lengths
    rows: tuple[int, ...] = (1,)
    if has_free_rows(signature):
        most = max(1, largest if largest is not None else USUAL_BATCH)
        rows = tuple(dict.fromkeys(_fitting(signature, reach, one) for one in (*ROWS, most)))
    families = ordinary_families(signature)
    for each in rows:
        yield families[0], Size(each, lengths)
    for family in families[1:]:
        yield family, Size(_fitting(signature, reach, FEW), lengths)
        yield family, Size(rows[-1], lengths)
    for other in further:
        yield families[0], Size(_fitting(signature, reach, FEW), other)
    for family in EDGES:
        yield family, Size(_fitting(signature, reach, FEW), lengths)


def _fitting(signature: ModelSignature, reach: SourceRange, rows: int) -> int:
    """So many rows, or fewer where they would take too much memory."""
    one = Size(1, reach.lengths[0])
    each = sum(
        prod(one.of(spec)) * numpy_dtype(spec.datatype).itemsize for spec in signature.inputs
    )
    most = 1 if reach.rows == 1 else _MOST_BYTES // max(each, 1)
    return max(1, min(rows, most))


def _said(size: Size, signature: ModelSignature) -> str:
    """The size for people."""
    rows = f"{size.rows} row{'s' if size.rows > 1 else ''}" if has_free_rows(signature) else "one"
    lengths = "x".join(map(str, size.lengths))
    return f"{rows} of length {lengths}" if size.lengths != (1,) else rows
