"""Wishes: how many local Tritons a hint asks for, and the next step towards that.

Only a hint that is sure takes Tritons away. One that is not may at most ask for more, unless it is
people who allow no more than that.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.capacity.scaling.signals import Code

_ALLOWED = frozenset({Code.MOST.value, Code.BUDGET.value})


@dataclass(frozen=True, slots=True)
class ReplicaWish:
    """How many there should be, and whether that may be fewer than there are. `why`: in words."""

    desired: int
    may_shrink: bool
    lasts: float  # seconds
    why: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "ReplicaWish":
        """Read a hint as the admin API tells it; `ValueError` and its like where it is none."""
        codes = {str(one["code"]) for one in told["reasons"]}
        return cls(
            int(told["desired"]),
            told["confidence"] == "high" or bool(codes & _ALLOWED),
            float(told["lasts"]),
            "; ".join(str(one["text"]) for one in told["reasons"]),
        )

    @property
    def sentence(self) -> str:
        """For people."""
        what = "1 replica" if self.desired == 1 else f"{self.desired} replicas"
        return f"the hint is {what} ({self.why})"


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What is to be done: start so many, take back or give away these, stop those that start."""

    start: int = 0
    take_back: tuple[str, ...] = ()
    give_away: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def plan(
    wish: ReplicaWish,
    *,
    serving: Sequence[str],
    starting: Sequence[str],
    leaving: Sequence[str],
    broken: Collection[str] = (),
) -> ReplicaPlan:
    """The next step. Names in the order in which they were started; `broken` do not run now.

    Those that start go first, then broken ones, then the newest: the others have their caches warm.
    """
    there = len(serving) + len(starting)
    if wish.desired >= there:
        back = tuple(leaving[: wish.desired - there])
        return ReplicaPlan(wish.desired - there - len(back), back)
    if not wish.may_shrink:
        return ReplicaPlan()
    order = [*reversed(starting), *(one for one in serving if one in broken)]
    order += [one for one in reversed(serving) if one not in broken]
    gone = order[: there - wish.desired]
    return ReplicaPlan(
        give_away=tuple(one for one in gone if one in serving),
        stop=tuple(one for one in gone if one in starting),
    )
