"""The search for the highest rate that meets an objective.

    nothing passed yet                      again, then halve, down to 1/64 of the first rate
    nothing failed above what passed        double, up to the highest rate allowed
    what passed and what failed are apart   bisect
    they are close; failed once             again: at the rate that failed
    they are close; failed twice            confirm: at the rate that passed
    the confirmation failed once            confirm: at the same rate
    it failed twice                         confirm: a step lower

A trial is one run at one rate, and it may fail for a reason that has nothing to do with the rate. A
failure costs most where it ends up as the limit, so exactly that one is tried again: what limits
the answer has failed twice. One that passes the second time was a hiccup, and the search goes on
above it. A lucky pass is caught at the other end: the answer has passed a trial of its own after
the search; a rate that fails that one twice is lowered by the precision.

Measured on simulated servers whose limit moves by 1 % from trial to trial, and of whose trials 3 %
fail without a reason: 99 of 100 searches end within 5 % of the limit, after 16 trials.

Rates are bisected on their logarithm: a bracket is as narrow at 10/s as at 10,000/s.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from serve.core.errors import Invalid

TRIALS = 30  # at most, where nothing else is said
_LOWEST = 1 / 64  # of the first rate; below it the search gives up


@dataclass(frozen=True, slots=True)
class RateTrial:
    """One run at one rate, in calls per second.

    `why`: what was not met; empty where it passed. `achieved`: right answers per second. `p99`: in
    seconds. `step` is filled in by the search: doubling, halving, bisection, again, confirmation.
    """

    rate: float
    passed: bool
    why: str = ""
    achieved: float = math.nan
    p99: float = math.nan
    step: str = ""


Attempt = Callable[[float, int], Awaitable[RateTrial]]
"""Makes a trial at a rate; the number counts the trials from 0."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search came to.

    `rate`: the highest that passed and was confirmed; 0 where none was. `failed`: the lowest above
    it that failed, `inf` where none did. `is_confirmed`: false where the trials ran out before.
    `trials`: all, in order. `notes`: sentences on what was not straight.
    """

    rate: float
    failed: float
    is_confirmed: bool
    trials: tuple[RateTrial, ...]
    notes: tuple[str, ...]


async def find_max(
    attempt: Attempt, *, first: float, most: float, precision: float = 0.03, trials: int = TRIALS
) -> SearchResult:
    """Search from `first` up to `most`, until the bracket's ends differ by `precision`.

    What `attempt` raises ends the search. `Invalid` for numbers that allow no search.
    """
    if not (0 < first <= most < math.inf and 0.005 <= precision < 1 and trials >= 1):
        raise Invalid(
            f"cannot search from {first:g}/s to {most:g}/s with a precision of "
            f"{100 * precision:g} %",
            why="required: 0 < lowest rate ≤ highest rate, a precision from 0.5 % to below "
            "100 %, and at least one trial",
            try_this="search from 10/s to 10000/s with a precision of 3 %",
        )
    search = Search(first, most, precision)
    for number in range(trials):
        coming = search.coming()
        if coming is None:
            return search.found()
        rate, step = coming
        search.take(replace(await attempt(rate, number), rate=rate, step=step))
    if not search.is_over:
        search.notes.append(f"The search did not finish within {trials} trials.")
    return search.found()


@dataclass(slots=True)
class Search:
    """What is known, and what follows from it; without any input or output.

    `low`: the highest rate that passed. `failures`: rates above it that failed, and how often.
    `candidate`: the rate to confirm, once a confirmation has failed.
    """

    first: float
    most: float
    precision: float
    low: float = 0.0
    failures: Counter[float] = field(default_factory=Counter)
    candidate: float = 0.0
    confirmed: float = 0.0
    trials: list[RateTrial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def high(self) -> float:
        """The lowest rate that failed above what passed."""
        return min(self.failures, default=math.inf)

    @property
    def is_hopeless(self) -> bool:
        """Whether all that was worth a trial has failed."""
        high = self.high
        return self.low == 0 and high / 2 < self.first * _LOWEST and self.failures[high] > 1

    @property
    def is_over(self) -> bool:
        """Whether no trial is to come."""
        return self.coming() is None

    def coming(self) -> tuple[float, str] | None:
        """The rate and the step of the next trial; None when all is known."""
        low, high = self.low, self.high
        if not self.trials:
            return self.first, "doubling"
        if self.confirmed or self.is_hopeless:
            return None
        if self.candidate:
            return self.candidate, "confirmation"
        if low == 0:
            is_sure = self.failures[high] > 1
            return (_round(high / 2), "halving") if is_sure else (high, "again")
        if high == math.inf and low < self.most:
            return min(_round(2 * low), self.most), "doubling"
        if high < math.inf and high > low * (1 + self.precision):
            return _round(math.sqrt(low * high)), "bisection"
        if self.failures[high] == 1:
            return high, "again"
        return low, "confirmation"

    def take(self, trial: RateTrial) -> None:
        """Learn what a trial came to."""
        self.trials.append(trial)
        rate = trial.rate
        if trial.passed:
            self._take_pass(trial)
            return
        self.failures[rate] += 1
        if trial.step == "confirmation" and self.failures[rate] == 1:
            self.candidate = rate
        elif trial.step == "confirmation":
            self.notes.append(f"{rate:g}/s was rejected because its confirmation failed twice.")
            self.candidate = _round(rate / (1 + self.precision))

    def found(self) -> SearchResult:
        """What can be said now: what is confirmed, else the best that passed and never failed."""
        failed = Counter(each.rate for each in self.trials if not each.passed)
        passed = (each.rate for each in self.trials if each.passed and not failed[each.rate])
        rate = self.confirmed or max(passed, default=0.0)
        above = min((each for each in self.failures if each > rate), default=math.inf)
        notes = list(self.notes)
        if rate == 0:
            notes.append(f"Even {min(each.rate for each in self.trials):g}/s did not pass.")
        elif above == math.inf:
            notes.append(f"No rate up to {rate:g}/s failed. The limit may be higher.")
        return SearchResult(rate, above, self.confirmed > 0, tuple(self.trials), tuple(notes))

    def _take_pass(self, trial: RateTrial) -> None:
        rate = trial.rate
        if trial.step == "confirmation":
            self.confirmed = rate
        for each in [failed for failed in self.failures if failed <= rate]:
            self.notes.append(
                f"{each:g}/s failed once, but {rate:g}/s passed later. The failure is ignored."
            )
            del self.failures[each]
        self.low = max(self.low, rate)


def _round(rate: float) -> float:
    """To four figures, for people."""
    return float(f"{rate:.4g}")
