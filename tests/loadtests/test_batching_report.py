"""The report of tuned batching: the newest of each step, and how well predictions hold."""

from pathlib import Path
from typing import Any

import pytest

from loadtests.bench import batching_report
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


def test_ranks_that_are_turned_round_are_seen() -> None:
    measured = [row(1, 100.0, 0.01), row(2, 200.0, 0.01), row(4, 300.0, 0.01)]
    told = [row(1, 3.0, 0.01), row(2, 2.0, 0.01), row(4, 1.0, 0.01)]
    assert predicted(page(measured, told)).correlation == pytest.approx(-1.0)


def test_a_setup_that_never_met_the_objective_is_not_counted() -> None:
    measured = [row(1, 0.0, float("nan")), row(2, 2.0, 0.01), row(4, 3.0, 0.01)]
    told = [row(1, 5.0, 0.01), row(2, 2.0, 0.01), row(4, 3.0, 0.01)]
    assert len(predicted(page(measured, told)).rates) == 2


def test_the_newest_of_each_step_counts() -> None:
    def run(**models: Any) -> dict[str, Any]:
        return {"date": "d", "machine": "m", "models": models}

    old, new = {"no batching": 1}, {"no batching": 2}
    grid = {"winners": {}, "grid": {}}
    newest = Newest.of([run(digits=old, other=old), run(digits=new), run(digits=grid)])
    assert newest.defaults == {"digits": new, "other": old}
    assert newest.grids == {"digits": grid}


def test_what_nothing_was_measured_of_stays_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = "a\n<!-- measured: grids -->\nold\n<!-- /measured: grids -->\nb\n"
    monkeypatch.setattr(batching_report, "PAGE", tmp_path / "page.md")
    batching_report.PAGE.write_text(before)
    batching_report._write("defaults", iter(["new"]))
    assert batching_report.PAGE.read_text() == before
    batching_report._write("grids", iter(["new"]))
    assert batching_report.PAGE.read_text() == before.replace("\nold\n", "\n\nnew\n\n")
