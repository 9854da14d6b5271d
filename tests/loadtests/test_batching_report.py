"""The report of tuned batching: the newest of each step, and how well predictions hold."""

from typing import Any

import pytest

from loadtests.bench.batching_report import Newest, predicted


def row(number: int, rate: float, p99: float) -> dict[str, Any]:
    return {"setup": {"max_batch_size": number}, "rate": rate, "p99": p99}


def page(measured: list[dict[str, Any]], told: list[dict[str, Any]]) -> dict[str, Any]:
    return {"grid": {"rows": measured}, "search": {"predicted": told}, "winners": {}}


def test_predictions_are_held_against_what_was_measured_of_the_same_setup() -> None:
    measured = [row(1, 100.0, 0.01), row(2, 200.0, 0.02), row(4, 400.0, 0.02)]
    told = [row(4, 400.0, 0.03), row(2, 220.0, 0.02), row(1, 150.0, 0.01)]
    held = predicted(page(measured, told))
    assert held.rates == ((100.0, 150.0), (200.0, 220.0), (400.0, 400.0))
    assert held.rate_error == pytest.approx(0.1)
    assert held.p99_error == pytest.approx(0.0)
    assert held.correlation == pytest.approx(1.0)


def test_the_newest_of_each_step_counts() -> None:
    def run(**models: Any) -> dict[str, Any]:
        return {"date": "d", "machine": "m", "models": models}

    old, new = {"no batching": 1}, {"no batching": 2}
    grid = {"winners": {}, "grid": {}}
    newest = Newest.of([run(digits=old, other=old), run(digits=new), run(digits=grid)])
    assert newest.defaults == {"digits": new, "other": old}
    assert newest.grids == {"digits": grid}
