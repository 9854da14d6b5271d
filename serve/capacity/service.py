"""Service time: how long one execution of a batch takes, ℓ(b) = a + c·b."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_ALONE: Mapping[int, float] = MappingProxyType({1: 1.0})


@dataclass(frozen=True, slots=True)
class Service:
    """The time of one execution: `fixed` + `per_row` · rows, in seconds.

    `scatter`: its coefficient of variation. `slowdown`: by what factor an execution takes longer
    while so many instances are busy at once; they share processors, or a GPU. Between the numbers
    that are told, and beyond them, it goes on in a line.
    """

    fixed: float
    per_row: float
    scatter: float = 0.0
    slowdown: Mapping[int, float] = field(default_factory=lambda: _ALONE)
