"""Confirming: the winner against the present configuration, in turns, and the ratio of their rates.

Each side has a staircase: a rate at which the objective was met is raised, one at which it was
missed is lowered, and each time the answer changes the step becomes smaller; it grows again where
the same answer comes four times running. So after a few rounds both sides stand at the highest
rate that they can bear *now*, and what drifts on the machine meets both alike. A round is one
measurement of each side; its ratio is that of the rates where they stand. A round counts once both
sides have found their place, where the steps are small; before that, one in which the winner has
met the objective at a rate at which the present configuration has not, nor ever below: the gain is
at least so much then. The interval is Student's t on the logarithms of the rounds' ratios, and no
narrower than a step.

(Up-and-down method: Dixon and Mood 1948; shrinking steps as in Kesten 1958.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve.workbench.loadtest.reports.comparison import student

ROUNDS = 3  # with both answers on both sides, from which on there is an interval
_FIRST, _LEAST = 1.4, 1.04  # factors of a step
_RUN = 4  # equal answers, by which it is seen to be far from where it belongs
_SETTLED = 1.1  # from this step on a side stands close to what it can bear
_FAR = 1.25


@dataclass(slots=True)
class Staircase:
    """One side. `rate` is the next to be tried; `trials` are all so far: rate, met or not."""

    rate: float
    step: float = _FIRST
    trials: list[tuple[float, bool]] = field(default_factory=list)

    def told(self, met: bool) -> None:
        """Learn what the trial at `rate` came to."""
        if self.trials and self.trials[-1][1] is not met:
            self.step = max(_LEAST, math.sqrt(self.step))
        self.trials.append((self.rate, met))
        if len(self.trials) >= _RUN and len({one for _, one in self.trials[-_RUN:]}) == 1:
            self.step = min(_FIRST, self.step**2)
        self.rate = float(f"{self.rate * (self.step if met else 1 / self.step):.4g}")

    @property
    def has_met(self) -> bool:
        """Whether it has met the objective at any rate."""
        return any(met for _, met in self.trials)

    @property
    def is_settled(self) -> bool:
        """Whether it stands close to the highest rate at which it meets the objective."""
        return self.step <= _SETTLED

    @property
    def level(self) -> float:
        """The rate where it stands: between the last trial and the next."""
        last = self.trials[-1][0]
        return math.sqrt(last * self.rate)

    def to_json(self) -> list[Any]:
        """For the state: what it began with follows from its trials."""
        return [[rate, met] for rate, met in self.trials]


@dataclass(frozen=True, slots=True)
class ConfirmationRound:
    """What a round has come to: calls/s of each side."""

    baseline: float
    winner: float


@dataclass(frozen=True, slots=True)
class RateRatio:
    """Winner ÷ baseline, with its 95 % interval; nan where there were too few rounds."""

    ratio: float
    low: float
    high: float
    baseline: float
    winner: float
    rounds: int

    @property
    def is_decided(self) -> bool:
        """Whether more rounds would change no answer: the interval is far from 1."""
        return self.low > _FAR or self.high < 1 / _FAR

    @property
    def is_gain(self) -> bool:
        """Whether the winner is better, as far as chance allows to say so."""
        return self.low > 1


class Duel:
    """The rounds of both sides, which begin at rates that the search has found."""

    def __init__(self, baseline: float, winner: float) -> None:
        self.begun_at = (baseline, winner)
        self.sides = {"baseline": Staircase(baseline), "winner": Staircase(winner)}
        self.rounds: list[ConfirmationRound] = []

    def __repr__(self) -> str:
        return f"<Duel {len(self.rounds)} rounds>"

    @property
    def order(self) -> tuple[str, str]:
        """Who is first in the next round: in turns."""
        made = len(self.sides["baseline"].trials)
        return ("baseline", "winner") if made % 2 == 0 else ("winner", "baseline")

    def told(self, baseline: bool, winner: bool) -> None:
        """A round is over: whether each side has met the objective."""
        tried = {name: side.rate for name, side in self.sides.items()}
        self.sides["baseline"].told(baseline)
        self.sides["winner"].told(winner)
        if all(side.is_settled for side in self.sides.values()):
            levels = {name: side.level for name, side in self.sides.items()}
            self.rounds.append(ConfirmationRound(levels["baseline"], levels["winner"]))
        elif winner and not self.sides["baseline"].has_met and tried["winner"] > tried["baseline"]:
            self.rounds.append(ConfirmationRound(tried["baseline"], tried["winner"]))

    def compared(self) -> RateRatio:
        """What the rounds say together."""
        return compared(self.rounds)

    def to_json(self) -> Mapping[str, Any]:
        """For the state."""
        met = [
            [one[1], other[1]]
            for one, other in zip(
                self.sides["baseline"].trials, self.sides["winner"].trials, strict=True
            )
        ]
        return {"begun_at": list(self.begun_at), "met": met}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Duel:
        """What `to_json` has made."""
        baseline, winner = page["begun_at"]
        duel = cls(float(baseline), float(winner))
        for one, other in page["met"]:
            duel.told(bool(one), bool(other))
        return duel


def compared(rounds: Sequence[ConfirmationRound]) -> RateRatio:
    """The geometric mean of the rounds' ratios, with its interval."""
    if not rounds:
        return RateRatio(math.nan, math.nan, math.nan, math.nan, math.nan, 0)
    logarithms = [math.log(one.winner / one.baseline) for one in rounds]
    count = len(rounds)
    middle = sum(logarithms) / count
    half = math.nan
    if count >= ROUNDS:
        variance = sum((each - middle) ** 2 for each in logarithms) / (count - 1)
        half = max(math.log(_LEAST), student(count - 1) * math.sqrt(variance / count))
    return RateRatio(
        math.exp(middle),
        math.exp(middle - half),
        math.exp(middle + half),
        _mean([one.baseline for one in rounds]),
        _mean([one.winner for one in rounds]),
        count,
    )


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
