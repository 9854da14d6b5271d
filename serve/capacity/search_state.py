"""A search's state as JSON, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from serve.capacity.measurements import Ask, Calibration, Measured, OpenLoopTrial, Pressure
from serve.capacity.prediction import Prediction
from serve.capacity.service import ExecutionPoint
from serve.capacity.setup import BatchSetup

FORMAT = 2

Plain = dict[str, Any]


def setup_to_json(setup: BatchSetup) -> Plain:
    """A setup's fields."""
    return {**asdict(setup), "preferred": list(setup.preferred)}


def setup_from_json(fields: Mapping[str, Any]) -> BatchSetup:
    """The setup of these fields."""
    return BatchSetup(
        int(fields["max_batch_size"]),
        int(fields["instances"]),
        bool(fields["batches"]),
        float(fields["delay"]),
        tuple(int(size) for size in fields["preferred"]),
    )


def ask_to_json(ask: Ask) -> Plain:
    """An ask's fields; a calibration has callers, a trial a rate and a step."""
    return {**asdict(ask), "setup": setup_to_json(ask.setup)}


def ask_from_json(fields: Mapping[str, Any]) -> Ask:
    """The ask of these fields."""
    setup, weight = setup_from_json(fields["setup"]), float(fields["weight"])
    if "callers" in fields:
        return Calibration(setup, int(fields["callers"]), weight)
    if "step" not in fields:
        return Pressure(setup, float(fields["rate"]), weight)
    return OpenLoopTrial(setup, float(fields["rate"]), weight, str(fields["step"]))


def told_to_json(told: Measured | str) -> Plain | str:
    """A measurement's fields; text, which says why there is none, stays text."""
    return told if isinstance(told, str) else asdict(told)


def told_from_json(fields: Any) -> Measured | str:
    """The measurement of these fields."""
    if isinstance(fields, str):
        return fields
    points = tuple(
        ExecutionPoint(int(each["rows"]), float(each["seconds"]), float(each["executions"]))
        for each in fields["points"]
    )
    numbers = ("seconds", "rate", "latency", "p50", "p99", "queue")
    known = {name: float(fields[name]) for name in numbers}
    return Measured(errors=int(fields["errors"]), points=points, **known)


def prediction_to_json(prediction: Prediction) -> list[Any]:
    """A prediction without its setup."""
    numbers = [prediction.rate, prediction.p99, prediction.rows_per_execution]
    return [*numbers, prediction.why]


def prediction_from_json(setup: BatchSetup, fields: Any) -> Prediction:
    """The prediction for a setup."""
    rate, p99, rows, why = fields
    return Prediction(setup, float(rate), float(p99), float(rows), str(why))
