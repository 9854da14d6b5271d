"""Hints on a board, in as few words as a test needs."""

from serve.capacity.scaling.signals import Bounds, Code, PoolSignal, Reason, ReplicaHint
from serve.control.scaling.board import HintBoard
from serve.control.scaling.told import PoolNumbers


def told(
    pool: str = "default",
    desired: int = 3,
    *codes: Code,
    ready: int = 2,
    starting: int = 0,
    at: float = 1000.0,
    lasts: float = 30.0,
) -> PoolNumbers:
    """A pool that is to have so many replicas, for these reasons, each of which says its code."""
    reasons = tuple(Reason(code, f"it is {code}") for code in codes or (Code.DEMAND,))
    return PoolNumbers(
        ReplicaHint(pool, desired, ready, starting, 1.5, reasons, lasts=lasts),
        PoolSignal(pool, 0.0, ready, starting, ()),
        Bounds(to_zero=True),
        at,
    )


def board(*hints: PoolNumbers) -> HintBoard:
    """A board after a round with these."""
    made = HintBoard()
    made.put(hints)
    return made
