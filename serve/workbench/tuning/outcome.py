"""What a tuning has come to: the winner, what it gains, and the change that brings it about."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from serve.capacity.measurements import Best
from serve.capacity.setup import BatchSetup
from serve.workbench.loadtest.reports.amounts import figures, rate_text, time_text
from serve.workbench.tuning.confirmation import ROUNDS, RateRatio, compared
from serve.workbench.tuning.setups import fields_of_setup, flags_of_setup, setup_of
from serve.workbench.tuning.state import TuningState, TuningSubject


@dataclass(frozen=True, slots=True)
class TuningOutcome:
    """`best` is None where no setup has met the objective. `fields` are those to be set.

    `verdict` says it in a sentence or two. `is_gain`: whether there is something to propose.
    """

    present: BatchSetup
    best: Best | None
    compared: RateRatio
    is_gain: bool
    verdict: str
    fields: Mapping[str, Any]

    def command(self, subject: TuningSubject) -> str:
        """The command line that makes the change; empty where nothing is proposed."""
        if not self.is_gain:
            return ""
        assert self.best is not None
        flags = flags_of_setup(self.best.setup, subject.config)
        which = f"{subject.model}@{subject.version}"
        return shlex.join(["servegate", "batching", "set", which, *flags])

    def lines(self, subject: TuningSubject) -> tuple[str, ...]:
        """The change as lines of config.pbtxt."""
        if not self.is_gain:
            return ()
        changed = {
            name: value
            for name, value in self.fields.items()
            if subject.fields.get(name, _NOTHING) != value
        }
        message = model_config_pb2.ModelConfig()
        said = {name: value for name, value in changed.items() if value is not None}
        json_format.ParseDict(said, message)
        lines = text_format.MessageToString(message).splitlines()
        for name, value in said.items():
            if value == 0:  # which is what protobuf does not write
                lines.append(f"{name}: 0")
        gone = (f"# without {name}" for name, value in changed.items() if value is None)
        return (*lines, *gone)


_NOTHING = object()
_MORE = "To continue, use --resume with a longer --budget."


def outcome_of(state: TuningState) -> TuningOutcome:
    """Of what was measured so far."""
    subject = state.subject
    present, best = setup_of(subject.config), state.search.best()
    found = state.duel.compared() if state.duel else compared(())
    is_gain = best is not None and best.setup != present and found.is_gain
    fields = dict(subject.fields)
    if best is not None and is_gain:
        fields = fields_of_setup(best.setup, subject.config, subject.fields)
    verdict = _nothing_met(state, present)
    if best is not None:
        verdict = _verdict(subject, present, best, found)
    return TuningOutcome(present, best, found, is_gain, verdict, fields)


def tuned_of(state: TuningState, outcome: TuningOutcome, now: datetime) -> dict[str, Any]:
    """What is remembered beside the change, so that it is noticed when calls leave it."""
    best, service = outcome.best, state.search.service
    assert best is not None
    rate = outcome.compared.winner
    return {
        "at": now.astimezone(UTC).isoformat(timespec="seconds"),
        "objective": state.subject.objective,
        "rate": rate if math.isfinite(rate) else best.rate,
        "rows": _rows(state.subject.rows),
        "rows_per_execution": best.rows_per_execution,
        "p99": best.p99,
        "service": service
        and {
            "fixed": service.fixed,
            "per_row": service.per_row,
            "scatter": service.scatter,
        },
    }


def _nothing_met(state: TuningState, present: BatchSetup) -> str:
    """What was tried in vain, what the present configuration can take, and what to do next."""
    objective, judged = state.subject.objective, [one for one in state.entries if one.rate > 0]
    judged = [one for one in judged if one.passed is not None]
    if not judged:
        return (
            "The time ran out after the calibration, before any configuration was tried. "
            "Use a longer --budget."
        )
    met = [one.rate for one in judged if one.passed and one.setup == present]
    if met:
        return (
            f"No other configuration met {objective} at a higher rate than the current "
            f"one ({present}), which met it at {rate_text(max(met))}. Use a longer "
            "--budget, or repeat the tuning while the machine has no other load."
        )
    lowest = min(judged, key=lambda one: one.rate)
    return (
        f"No configuration met {objective}: at {rate_text(lowest.rate)}, the lowest rate, "
        f"{lowest.setup} took {time_text(lowest.latency)}. Repeat the tuning while the "
        "machine has no other load, or use --slo with a higher limit."
    )


def _verdict(subject: TuningSubject, present: BatchSetup, best: Best, found: RateRatio) -> str:
    objective = subject.objective
    if best.setup == present:
        return (
            f"No gain: the current configuration ({present}) is the best one found, with "
            f"{rate_text(best.rate)} under {objective}."
        )
    what = f"{best.setup}: {rate_text(best.rate)} under {objective}"
    if not found.rounds:
        return f"{what}. It was not compared with the current configuration ({present}). {_MORE}"
    ratio = f"{figures(found.ratio)} times the current configuration ({present})"
    if found.rounds < ROUNDS:
        return (
            f"{what}, {ratio}. There were too few rounds for an interval, so no change is "
            f"proposed. {_MORE}"
        )
    interval = (
        f"95 % interval: {figures(found.low)} to {figures(found.high)}, {found.rounds} rounds"
    )
    if found.is_gain:
        return f"{what}, {ratio} ({interval})."
    if found.high < 1:
        return f"No gain: {best.setup} was slower in alternating measurements ({interval})."
    return f"No gain: {best.setup} reaches {ratio}, which may be chance ({interval})."


def _rows(text: str) -> float:
    from serve.workbench.tuning.measurements import mean_rows, parse_rows

    return mean_rows(parse_rows(text))
