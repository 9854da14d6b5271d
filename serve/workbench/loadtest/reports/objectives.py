"""Objectives of a load test, as text: `p99<20ms,errors<0.1%,achieved>99%`; all must be met.

    what                      unit              of a run
    p50 p90 p95 p99 p99.9     us, ms, s, m      quantile of the latency, of which calls says
                                                `counting.is_waited`; p999 is p99.9
    mean max                  us, ms, s, m      of the same latencies
    errors                    %                 (all − right) ÷ all calls that were meant to start
    achieved                  %                 right ÷ all calls that were meant to start
    late                      %                 started 10 ms or more after their time, or never
    top1                      %                 right ÷ (right + answered otherwise)
    rate                      calls per second  right answers

What is better small has a limit above (`<`, `<=`), the rest one below (`>`, `>=`). What could not
be measured does not pass: there were no calls, or no answers to check.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from serve.core.errors import Invalid
from serve.workbench.loadtest.record import WRONG
from serve.workbench.loadtest.reports import amounts, summary
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import SummaryRow


class Unit(Enum):
    """What the limit of a condition is given in: its factors to seconds, shares or calls/s."""

    TIME = (("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0))
    SHARE = (("%", 0.01),)
    RATE = (("", 1.0), ("/s", 1.0))


@dataclass(frozen=True, slots=True)
class Measure:
    """Something a condition can be about. `example` is a condition on it."""

    unit: Unit
    is_better_small: bool
    example: str
    of: Callable[[LoadRun, SummaryRow], float]


def _top1(run: LoadRun, row: SummaryRow) -> float:
    is_checked = any(lane["checked"] for lane in run.outline["lanes"])
    answered = row.right + row.errors.get(WRONG, 0)
    return row.right / answered if is_checked and answered else math.nan


def _time(name: str, of: Callable[[summary.Quantiles], float]) -> Measure:
    return Measure(Unit.TIME, True, f"{name}<20ms", lambda _, row: of(row.latency))


MEASURES: Mapping[str, Measure] = {
    "p50": _time("p50", lambda times: times.p50),
    "p90": _time("p90", lambda times: times.p90),
    "p95": _time("p95", lambda times: times.p95),
    "p99": _time("p99", lambda times: times.p99),
    "p99.9": _time("p99.9", lambda times: times.p999),
    "mean": _time("mean", lambda times: times.mean),
    "max": _time("max", lambda times: times.largest),
    "errors": Measure(Unit.SHARE, True, "errors<0.1%", lambda _, row: row.error_share),
    "achieved": Measure(Unit.SHARE, False, "achieved>99%", lambda run, _: summary.achieved(run)),
    "late": Measure(Unit.SHARE, True, "late<1%", lambda run, _: summary.late_share(run)),
    "top1": Measure(Unit.SHARE, False, "top1>97%", _top1),
    "rate": Measure(Unit.RATE, False, "rate>180", lambda _, row: row.rate),
}
_ALSO = {"p999": "p99.9"}
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FORM = re.compile(
    r"(?P<name>[a-z][a-z0-9.]*)\s*(?P<sign>[<>]=?)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>\D*)\Z",
    re.ASCII | re.IGNORECASE,
)
_EXAMPLE = "p99<20ms,errors<0.1%"


@dataclass(frozen=True, slots=True)
class ObjectiveCondition:
    """One of them. `limit`: in seconds, as a share between 0 and 1, or in calls per second."""

    name: str
    sign: str
    limit: float

    def __str__(self) -> str:
        unit = MEASURES[self.name].unit
        if unit is Unit.TIME:
            is_short = self.limit < 1
            return f"{self.name}{self.sign}{_plain(self.limit, 1000 if is_short else 1)}" + (
                "ms" if is_short else "s"
            )
        if unit is Unit.SHARE:
            return f"{self.name}{self.sign}{_plain(self.limit, 100)}%"
        return f"{self.name}{self.sign}{_plain(self.limit, 1)}"

    def accepts(self, value: float) -> bool:
        """Whether a value meets it; nan never does."""
        return _SIGNS[self.sign](value, self.limit)


@dataclass(frozen=True, slots=True)
class JudgedObjective:
    """A condition and what a run has come to. `value` is in the unit of the limit, or nan."""

    condition: ObjectiveCondition
    value: float
    passed: bool

    def __str__(self) -> str:
        """`p99 is 31.2 ms (p99<20ms: not met)`."""
        return f"{self.said} ({self.condition}: {'met' if self.passed else 'not met'})"

    @property
    def said(self) -> str:
        """`p99 is 31.2 ms`."""
        if math.isnan(self.value):
            return f"{self.condition.name} could not be measured"
        return f"{self.condition.name} is {_told(self.condition.name, self.value)}"


def parse_objective(text: str) -> tuple[ObjectiveCondition, ...]:
    """Read `p99<20ms,errors<0.1%`. `Invalid` names what is no condition, and what is known."""
    return tuple(_condition(part.strip()) for part in text.split(","))


def judge(conditions: Sequence[ObjectiveCondition], run: LoadRun) -> tuple[JudgedObjective, ...]:
    """What a whole run comes to, condition by condition."""
    row = summary.total(run)
    values = [MEASURES[each.name].of(run, row) for each in conditions]
    return tuple(
        JudgedObjective(condition, value, condition.accepts(value))
        for condition, value in zip(conditions, values, strict=True)
    )


def judge_run(run: LoadRun) -> tuple[JudgedObjective, ...]:
    """By the objective that the run was given; nothing where it had none."""
    return judge(parse_objective(run.objective), run) if run.objective else ()


def _condition(text: str) -> ObjectiveCondition:
    match = _FORM.match(text)
    if match is None:
        raise _invalid(text, "a condition is a name, < or >, and a number with its unit", _EXAMPLE)
    name = _ALSO.get(match["name"].lower(), match["name"].lower())
    measure = MEASURES.get(name)
    if measure is None:
        raise _invalid(text, f"allowed names: {', '.join(MEASURES)}", _EXAMPLE)
    factor = dict(measure.unit.value).get(match["unit"].strip().lower())
    if factor is None:
        units = " or ".join(unit for unit, _ in measure.unit.value if unit)
        raise _invalid(text, f"the unit of {name} is {units}", measure.example)
    if (match["sign"][0] == "<") != measure.is_better_small:
        better = "smaller" if measure.is_better_small else "larger"
        raise _invalid(text, f"{better} values of {name} are better", measure.example)
    limit = float(match["number"]) * factor
    if not math.isfinite(limit) or (measure.unit is Unit.SHARE and limit > 1):
        raise _invalid(text, "every run would meet it, or none", measure.example)
    return ObjectiveCondition(name, match["sign"], limit)


def _invalid(text: str, why: str, example: str) -> Invalid:
    return Invalid(f"'{text}' is not a valid condition", why=why, try_this=example)


def _told(name: str, value: float) -> str:
    unit = MEASURES[name].unit
    if unit is Unit.TIME:
        return amounts.time_text(value)
    return amounts.share_text(value) if unit is Unit.SHARE else amounts.rate_text(value)


def _plain(limit: float, factor: float) -> str:
    """Without an exponent and without idle zeros."""
    return f"{limit * factor:.6f}".rstrip("0").rstrip(".")
