"""How many replicas bear a demand: what is busy all the time, and some to spare.

Chance is larger in small pools: of n that are busy on average, √n more or fewer are at times. So
what is spare grows with the root (Halfin and Whitt, 1981); in large pools it is a share, since a
capacity that was learned is not exact, and calls are not shared out evenly.

    replicas ≥ busy + `SPARE` · √busy     and     replicas ≥ busy ÷ `UP`
"""

import math

SPARE = 0.45
UP = 0.9  # share of the time for which replicas may be busy


def whole(replicas: float) -> int:
    """Rounded up, but for what is only the arithmetic's."""
    return math.ceil(replicas - 1e-9)


def enough(busy: float) -> int:
    """Replicas for a demand in replicas that would be busy all the time."""
    return whole(max(busy + SPARE * math.sqrt(busy), busy / UP))


def borne(replicas: int) -> float:
    """The highest demand for which so many are enough."""
    root = (math.sqrt(SPARE**2 + 4 * replicas) - SPARE) / 2
    return min(root**2, replicas * UP)
