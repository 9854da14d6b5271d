"""The grid: all setups worth thinking of.

Preferred sizes are left out. Triton's own manual says that most models gain nothing by them: they
are for engines with a profile per size, and calls that miss the size wait, or run in smaller
batches than they could (`forming.py`).
"""

from collections.abc import Sequence

from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid
from serve.core.objectives import Objective

_DELAYS = (0.0, 0.02, 0.05, 0.15)  # of the objective's limit
_FINEST = 1e-4  # seconds; shorter delays are no longer than the batcher's own way


def candidates(
    largest: int, *, instances: int, objective: Objective, delays: Sequence[float] | None = None
) -> tuple[BatchSetup, ...]:
    """All setups worth thinking of, the simplest first.

    `largest`: the highest max_batch_size, in rows; 0 for a model that takes no batches.
    `instances`: the most. `delays`: seconds; without them some shares of the objective's limit.
    """
    if largest < 0 or instances < 1:
        raise Invalid(
            f"there are no configurations with up to {largest} rows and {instances} instances",
            why="required: 0 or more rows, and at least one instance",
        )
    if delays is None:
        delays = [_plain(share * objective.limit) for share in _DELAYS]
    waits = sorted({each for each in delays if each == 0 or each >= _FINEST})
    found = []
    for count in range(1, instances + 1):
        found.append(BatchSetup(largest, count, batches=False))
        for size in _sizes(largest):
            found += [BatchSetup(size, count, delay=delay) for delay in waits]
    return tuple(found)


def _sizes(largest: int) -> list[int]:
    """2, 4, 8, … and the largest."""
    powers = [2**power for power in range(1, 20) if 2**power < largest]
    return [*powers, largest] if largest > 1 else []


def _plain(seconds: float) -> float:
    """Two figures of microseconds, for people."""
    return float(f"{seconds * 1e6:.2g}") / 1e6
