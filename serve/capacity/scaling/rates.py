"""The rate at which calls come: followed at once where it has changed, and smooth where it has not.

What comes in five seconds scatters, with bursty callers far more than by pure chance. So it is told
from the past how much it scatters:

    σ²    half of the squared difference of two means of five seconds that follow each other; by
          half in `SCATTER`. A difference counts for 3 σ at most: a jump is none of the scatter.
    rate  the mean, by half in `SMOOTH`; but within lately ± 2 σ ÷ √3, and at least recent − 2 σ

where `recent` is the mean over 5 s and `lately` over 15 s, whose σ is smaller by √3.
"""

import math
from dataclasses import dataclass

RECENT, LATELY = 5.0, 15.0  # seconds
SMOOTH, SCATTER = 60.0, 120.0  # seconds
SURE = 2.0  # σ
_OUTLIER = 3.0  # σ


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls per second. `variance`: σ² of `recent`, which was `last`."""

    now: float
    variance: float
    last: float


def follow(known: Rate | None, recent: float, lately: float, passed: float) -> Rate:
    """The rate after so many more seconds; None where nothing is known yet."""
    if known is None:
        return Rate(lately, lately / RECENT, recent)
    chance = max(known.variance, lately / RECENT)  # a Poisson process scatters so at least
    rest = min((recent - known.last) ** 2 / 2, _OUTLIER**2 * chance)
    variance = known.variance + _share(passed, SCATTER) * (rest - known.variance)
    sigma = math.sqrt(max(variance, lately / RECENT))
    near = SURE * sigma / math.sqrt(LATELY / RECENT)
    mean = known.now + _share(passed, SMOOTH) * (recent - known.now)
    now = max(min(mean, lately + near), lately - near, recent - SURE * sigma, 0.0)
    return Rate(now, variance, recent)


def _share(passed: float, half: float) -> float:
    """How much of the new replaces the old."""
    return 1.0 - math.exp2(-passed / half)
