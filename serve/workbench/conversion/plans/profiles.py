"""Profiles: for which shapes of its inputs TensorRT makes a plan, smallest, best and largest.

A plan is made for a range of shapes and is fastest at one of them. Inputs whose shape is fixed have
no profile. The first dimension of a batched model goes from 1 to `max_batch_size`, as Triton needs
it; every other free dimension has to be said:

    x=1x8x8x1:8x8x8x1:32x8x8x1        input=smallest:best:largest
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.core.errors import ConversionFailed
from serve.tensors.datatypes import Shape
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.workbench.conversion.faults import failed

_WRITTEN = re.compile(r"^(?P<name>.+)=(?P<shapes>[0-9x]+:[0-9x]+:[0-9x]+)\Z", re.DOTALL)
_SHAPE = re.compile(r"^[0-9]{1,9}(x[0-9]{1,9})*\Z")
_UNSPEAKABLE = frozenset("',:=\"\\ ")  # trtexec and ONNX Runtime split their lists of shapes there
_MOST_DIMENSIONS = 8  # of TensorRT


@dataclass(frozen=True, slots=True)
class Profile:
    """The shapes of one input, each with the batch dimension."""

    name: str
    low: Shape
    best: Shape
    high: Shape

    def __str__(self) -> str:
        return f"{self.name}={':'.join(written(each) for each in (self.low, self.best, self.high))}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        shapes = {"low": list(self.low), "best": list(self.best), "high": list(self.high)}
        return {"name": self.name, **shapes}

    @classmethod
    def from_json(cls, page: Any) -> "Profile":
        """Read what `to_json` gave; KeyError, TypeError or ValueError for anything else."""
        low, best, high = (tuple(map(int, page[key])) for key in ("low", "best", "high"))
        return cls(str(page["name"]), low, best, high)


def written(shape: Shape) -> str:
    """`8x8x1`"""
    return "x".join(map(str, shape))


def listed(profiles: Sequence[Profile]) -> Mapping[str, str]:
    """The `min`, `opt` and `max` shapes as TensorRT lists them: `x:1x8,y:1x3`; none for none."""
    if not profiles:
        return {}
    return {
        "min": ",".join(f"{each.name}:{written(each.low)}" for each in profiles),
        "opt": ",".join(f"{each.name}:{written(each.best)}" for each in profiles),
        "max": ",".join(f"{each.name}:{written(each.high)}" for each in profiles),
    }


def parse_profile(text: str) -> Profile:
    """Read `x=1x8:8x8:32x8`; `trt_profile` when it is not written so."""
    found = _WRITTEN.match(text)
    if found is None:
        raise _wrong(f"'{text[:200]}' is not NAME=MIN:OPT:MAX")
    shapes = []
    for word in found["shapes"].split(":"):
        if not _SHAPE.match(word):
            raise _wrong(f"'{word[:60]}' is not a shape", found["name"])
        shapes.append(tuple(map(int, word.split("x"))))
    return Profile(found["name"], *shapes)


def profiles(
    signature: ModelSignature, max_batch_size: int, given: Iterable[Profile] = ()
) -> tuple[Profile, ...]:
    """The profile of every input with a free dimension, in the order of the signature.

    `max_batch_size` 0: the model has no batch dimension that Triton knows of. `trt_profile` for
    each mismatch: an unknown input, another rank, a fixed dimension that changes, shapes that do
    not grow, a batch that Triton could exceed, or a free dimension of which nothing is said.
    """
    said = _by_name(signature, given)
    found = []
    for spec in signature.inputs:
        one = said.get(spec.name) or _batched(spec, max_batch_size)
        if one is None:
            continue
        _check(spec, one, max_batch_size)
        if spec.shape is not None and DYNAMIC in spec.shape:
            found.append(one)
    return tuple(found)


def _by_name(signature: ModelSignature, given: Iterable[Profile]) -> dict[str, Profile]:
    names = [spec.name for spec in signature.inputs]
    found: dict[str, Profile] = {}
    for each in given:
        if each.name not in names:
            raise _wrong(f"the model has no such input; it has {', '.join(names)}", each.name)
        if each.name in found:
            raise _wrong("it has two profiles", each.name)
        found[each.name] = each
    return found


def _batched(spec: ModelTensor, max_batch_size: int) -> Profile | None:
    """What goes without saying: a batch of 1 to all, and no other free dimension."""
    if spec.shape is None:
        raise _wrong("the model does not define its number of dimensions", spec.name)
    if DYNAMIC not in spec.shape:
        return None
    first, rest = spec.shape[0], spec.shape[1:]
    if first != DYNAMIC or DYNAMIC in rest or max_batch_size < 1:
        free = "x".join("?" if size == DYNAMIC else str(size) for size in spec.shape)
        raise _wrong(
            f"its shape is {free}, and no profile sets its free dimensions"
            + ("" if max_batch_size or first != DYNAMIC else " (max_batch_size is 0)"),
            spec.name,
        )
    return Profile(spec.name, (1, *rest), (max_batch_size, *rest), (max_batch_size, *rest))


def _check(spec: ModelTensor, one: Profile, max_batch_size: int) -> None:
    if _UNSPEAKABLE & set(spec.name):
        raise _wrong(
            "a name with quotes, spaces or any of , : = \\ cannot have a profile", spec.name
        )
    if spec.shape is None:
        raise _wrong("the model does not define its number of dimensions", spec.name)
    for shape in (one.low, one.best, one.high):
        if len(shape) != len(spec.shape) or len(shape) > _MOST_DIMENSIONS:
            why = f"{written(shape)} has {len(shape)} dimensions, the model has {len(spec.shape)}"
            raise _wrong(why, spec.name)
        for at, (size, fixed) in enumerate(zip(shape, spec.shape, strict=True)):
            if fixed not in (DYNAMIC, size):
                raise _wrong(
                    f"dimension {at} is {fixed} in the model and {size} in {written(shape)}",
                    spec.name,
                )
    if not all(a <= b <= c for a, b, c in zip(one.low, one.best, one.high, strict=True)):
        raise _wrong(f"not min ≤ opt ≤ max: {one}", spec.name)
    if min(one.best, default=1) < 1:
        raise _wrong(f"a dimension of {written(one.best)} is 0", spec.name)
    if max_batch_size and spec.shape and spec.shape[0] == DYNAMIC:
        if one.low[0] > 1:
            raise _wrong(f"Triton sends batches of 1, but the smallest is {one.low[0]}", spec.name)
        if one.high[0] < max_batch_size:
            why = (
                f"Triton sends batches of up to {max_batch_size}, but the largest is {one.high[0]}"
            )
            raise _wrong(why, spec.name)


def _wrong(why: str, name: str = "") -> ConversionFailed:
    return failed("trt_profile", f"input '{name}': {why}" if name else why)
