"""Growth: to which power of the fleet's size something grows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Point = tuple[float, float]  # replicas, and what was measured


@dataclass(frozen=True, slots=True)
class Growth:
    """value ∝ replicas^`exponent`, over the sizes from `least` on; R² of the line through the logs.

    0 is constant, 1 is in proportion.
    """

    exponent: float
    explained: float
    least: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f}"


def growth(points: Sequence[Point], least: float = 200.0) -> Growth | None:
    """By the slope through the logarithms; None where fewer than three sizes were measured."""
    large = [(size, value) for size, value in points if size >= least and value > 0]
    if len(large) < 3:
        return None
    sizes, values = np.log(np.array(large)).T
    slope, start = np.polyfit(sizes, values, 1)
    scatter = ((values - values.mean()) ** 2).sum()
    left = ((values - (start + slope * sizes)) ** 2).sum()
    explained = 1.0 if scatter < 1e-12 else 1 - left / scatter
    return Growth(float(slope), float(explained), least)
