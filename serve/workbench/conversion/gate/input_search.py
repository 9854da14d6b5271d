"""Finds out what a source takes, by asking it: lengths, the largest ids, words or numerals.

TensorFlow raises on the CPU when an id is beyond its table, a picture too small, or a text no
number. So the largest id that is taken is the last row of the table, found by halving.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType

import numpy as np

from serve.model_files.reader import lacks_memory
from serve.tensors.datatypes import BYTES, Array, numpy_dtype
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.gate.families import NUMERALS, WORDS, values
from serve.workbench.conversion.gate.shapes import Size, has_free_rows, has_lengths, shape_of

Runner = Callable[[Mapping[str, Array]], Mapping[str, Array]]
LENGTHS = (16, 8, 32, 64, 4, 128, 224, 2, 1)
MOST_LENGTHS = 3
MOST_ID = (1 << 17) - 1
MOST_COUNT = 16  # of a number by itself: it may be how much is to be made
MODEST = ("small", "ones", "zeros")  # families; the first has letters, which are no numerals
_ROWS = (2, 1)
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What a source takes. `lengths` of free dimensions, the best first; `limits` of ids."""

    rows: int = 2
    lengths: tuple[tuple[int, ...], ...] = ((1,),)
    limits: Mapping[str, int] = field(default_factory=lambda: _NO_LIMITS)
    texts: str = WORDS

    @property
    def size(self) -> Size:
        """A size that surely works."""
        return Size(self.rows, self.lengths[0])


def explore(source: Runner, signature: ModelSignature, seed: int) -> SourceRange:
    """Ask the source; `samples_invalid` when it takes nothing of what is tried.

    A source that lacks memory for a single row is `out_of_memory`.
    """
    rng = np.random.default_rng(seed)
    trouble = ""
    for reach, family in _starts(signature):
        _, trouble = ask(source, inputs_for(signature, reach, reach.size, family, rng))
        if trouble:
            continue
        lengths = _lengths(source, signature, reach, family, rng)
        limits = _limits(source, signature, reach, family, rng)
        return SourceRange(reach.rows, lengths, limits, reach.texts)
    if lacks_memory(trouble):
        raise failed("out_of_memory", f"the source cannot process a single row: {trouble}")
    raise failed(
        "samples_invalid",
        f"the source accepts no generated input: {trouble}",
        hint="pass --samples FILE.npz with inputs that it accepts",
    )


def inputs_for(
    signature: ModelSignature, reach: SourceRange, size: Size, family: str, rng: np.random.Generator
) -> Mapping[str, Array]:
    """The generated inputs of one call."""
    return {
        spec.name: values(spec, size.of(spec), family, rng, limits=reach.limits, texts=reach.texts)
        for spec in signature.inputs
    }


def ask(runner: Runner, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array] | None, str]:
    """What a model answers; or None, and why it does not take these inputs.

    A lack of memory of ours is raised: it says nothing about the inputs.
    """
    try:
        return runner(inputs), ""
    except MemoryError:
        raise
    except Exception as error:  # whatever the library raises
        first, _, _ = str(error).strip().partition("\n")
        return None, f"{type(error).__name__}: {first}"[:300]


def _starts(signature: ModelSignature) -> Iterator[tuple[SourceRange, str]]:
    """Modest inputs to begin with: zeros come last, as they may be a length of nothing."""
    datatypes = {spec.datatype for spec in signature.inputs}
    limits = {spec.name: 1 for spec in signature.inputs if _is_whole(spec)}
    kinds = (WORDS, NUMERALS) if BYTES in datatypes else (WORDS,)
    lengths = LENGTHS if has_lengths(signature) else (1,)
    for rows in _ROWS if has_free_rows(signature) else _ROWS[:1]:
        for kind in kinds:
            for length in lengths:
                for family in MODEST if kind == kinds[-1] else MODEST[:1]:
                    yield SourceRange(rows, ((length,),), limits, kind), family


def _lengths(
    source: Runner,
    signature: ModelSignature,
    reach: SourceRange,
    family: str,
    rng: np.random.Generator,
) -> tuple[tuple[int, ...], ...]:
    """A few lengths that work, and one call whose dimensions differ."""
    best = reach.lengths[0]
    if not has_lengths(signature):
        return reach.lengths
    others: list[tuple[int, ...]] = [(each,) for each in LENGTHS if (each,) != best]
    others.insert(1, (best[0], 2 * best[0]))
    found = [best]
    for lengths in others[:6]:
        inputs = inputs_for(signature, reach, Size(reach.rows, lengths), family, rng)
        if len(found) < MOST_LENGTHS and ask(source, inputs)[0] is not None:
            found.append(lengths)
    return tuple(found)


def _limits(
    source: Runner,
    signature: ModelSignature,
    reach: SourceRange,
    family: str,
    rng: np.random.Generator,
) -> Mapping[str, int]:
    """The largest whole number that each input takes while the others stay as they are."""
    base = inputs_for(signature, reach, Size(1, reach.lengths[0]), family, rng)
    if ask(source, base)[0] is None:
        base = inputs_for(signature, reach, reach.size, family, rng)
    found = {}
    for spec in signature.inputs:
        if _is_whole(spec):
            found[spec.name] = _largest(source, base, spec)
    return MappingProxyType(found)


def _largest(source: Runner, base: Mapping[str, Array], spec: ModelTensor) -> int:
    array = base[spec.name]

    def takes(value: int) -> bool:
        return ask(source, {**base, spec.name: np.full_like(array, value)})[0] is not None

    shape = shape_of(spec)
    is_alone = DYNAMIC not in shape and prod(shape) == 1
    most = min(int(np.iinfo(array.dtype).max), MOST_COUNT if is_alone else MOST_ID)
    if takes(most):
        return most
    low, high = int(array.max(initial=0)), most  # the one is taken, the other is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return low


def _is_whole(spec: ModelTensor) -> bool:
    return spec.datatype != BYTES and numpy_dtype(spec.datatype).kind in "iu"
