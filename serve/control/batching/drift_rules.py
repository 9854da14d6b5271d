"""The rules of hints: how what calls do now differs from what a configuration was tuned for.

`tuned` is what `servegate batching tune` measured when it chose the configuration: `rate` (calls
per second of one replica), `rows` (of a call), `objective`, and `service`, the line of its
executions. A number that is not there is not compared.
"""

from collections.abc import Iterator
from typing import Any

from serve.capacity.service import ServiceTime
from serve.control.batching.situation import Situation, points
from serve.control.batching.texts import per_cent, rows, seconds
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.triton.lint.subject import LintFinding

_MORE = 1.05  # times the rate that was tuned for
_OTHER = 1.5  # times as many rows, or as few
_DRIFT = 0.3  # of the service time

Findings = Iterator[LintFinding]


def rate_above(one: Situation) -> Findings:
    """The call rate is above the highest rate that met the objective when it was tuned."""
    tuned, now = _number(one.tuned.get("rate")), one.window.rate_per_replica
    if tuned and now > tuned * _MORE:
        yield LintFinding(
            "rate",
            f"a replica gets {now:.4g} calls/s, and it was tuned for up to {tuned:.4g}",
            _again(one),
        )


def rows_differ(one: Situation) -> Findings:
    """Calls have a different number of rows than when it was tuned."""
    tuned, now = _number(one.tuned.get("rows")), one.window.rows_per_call
    if tuned and now and not tuned / _OTHER < now < tuned * _OTHER:
        yield LintFinding(
            "rows",
            f"calls have {rows(now)}, and it was tuned with calls of {rows(tuned)}",
            _again(one),
        )


def service_drifted(one: Situation) -> Findings:
    """Executions of the same size take a different time than when it was tuned."""
    line = _line(one.tuned.get("service"))
    seen = points(one.window)
    if line is None or not seen:
        return
    took = sum(point.seconds * point.executions for point in seen)
    expected = sum(line.time(point.rows) * point.executions for point in seen)
    drift = took / expected - 1
    if abs(drift) > _DRIFT:
        many = sum(point.executions for point in seen)
        yield LintFinding(
            "service",
            f"an execution takes {seconds(took / many)}, {per_cent(abs(drift))} "
            f"{'more' if drift > 0 else 'less'} than one of the same size when it was tuned",
            _again(one),
        )


def objective_missed(one: Situation) -> Findings:
    """Calls take longer than the objective, as measured by the gateway."""
    objective = _objective(one)
    if objective is None or one.took.calls < one.window.counted.calls / 2:
        return  # calls that came past the gateway are not known
    took = one.took.quantile(objective.quantile)
    if took is not None and took > objective.limit:
        yield LintFinding(
            "objective",
            f"p{objective.quantile:g} is {seconds(took)}, but the objective is {objective}",
            _again(one),
        )


def _objective(one: Situation) -> Objective | None:
    """The model's own, else the one that it was tuned for."""
    if one.objective is not None:
        return one.objective
    try:
        return Objective.parse(str(one.tuned.get("objective", "")))
    except Invalid:
        return None


def _again(one: Situation) -> str:
    objective = _objective(one)
    slo = f" --slo '{objective}'" if objective else ""
    return f"servegate batching tune {one.asked}{slo}"


def _line(page: Any) -> ServiceTime | None:
    if not isinstance(page, dict):
        return None
    fixed, per_row = _number(page.get("fixed")), _number(page.get("per_row"))
    return ServiceTime(fixed, per_row) if fixed + per_row > 0 else None


def _number(value: Any) -> float:
    """0 for what is no number, or below 0."""
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
