"""A whole tuning, on a server that is simulated and a clock that measurements move."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from capacity.simulated_server import UNIT, SimulatedServer

from serve.capacity.measurements import Ask, OpenLoopTrial
from serve.capacity.search import Halving, candidates
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid, TritonFailed
from serve.core.objectives import Objective
from serve.workbench.tuning.measurements import MeasurementResult, Stopped
from serve.workbench.tuning.outcome import outcome_of
from serve.workbench.tuning.page import render
from serve.workbench.tuning.report import document
from serve.workbench.tuning.session import LOWER, Now, Session
from serve.workbench.tuning.setups import setup_of
from serve.workbench.tuning.state import TuningState, TuningSubject

OBJECTIVE = Objective(99, 0.05)
PRESENT = {"max_batch_size": 16, "instance_group": [{"count": 1, "kind": "KIND_CPU"}]}
FLAT = ServiceTime(0.010, 0.0002, scatter=0.05)  # what batching is made for
STEEP = ServiceTime(0.0001, 0.010, scatter=0.05)  # what batching gives nothing for


@dataclass
class Bench:
    """Remembers what it was told to load; refuses what `refuses` says."""

    refuses: Callable[[dict[str, Any]], bool] = lambda fields: False
    loaded: list[dict[str, Any]] = field(default_factory=list)

    async def load(self, fields: Any) -> None:
        self.loaded.append(dict(fields))
        if self.refuses(dict(fields)):
            raise TritonFailed("there is no memory for it")

    def require(self) -> None: ...


class Measuring:
    """Stands for `Measuring`: the simulated server's answers, and a clock that they move."""

    def __init__(self, service: ServiceTime, *, stops_after: int = 10_000) -> None:
        self.server = SimulatedServer(service, 0.0005, OBJECTIVE)
        self.now = 0.0
        self._stops_after = stops_after

    def clock(self) -> float:
        return self.now

    def seconds(self, ask: Ask) -> float:
        return UNIT * ask.weight

    async def measure(self, ask: Ask) -> MeasurementResult:
        if len(self.server.asked) >= self._stops_after:
            raise Stopped
        self.now += self.seconds(ask) + 1.0
        return MeasurementResult(self.server.answer(ask), "")


class Busy(Measuring):
    """A machine that other load slows down as soon as calls come faster than `most` a second."""

    def __init__(self, service: ServiceTime, most: float) -> None:
        super().__init__(service)
        self._most = most

    async def measure(self, ask: Ask) -> MeasurementResult:
        result = await super().measure(ask)
        if isinstance(ask, OpenLoopTrial) and ask.rate > self._most:
            late = replace(result.measured, latency=0.4, p99=0.4)
            return replace(result, measured=late)
        return result


def new(config: dict[str, Any] = PRESENT) -> TuningState:
    grid = [*candidates(16, instances=1, objective=OBJECTIVE)]
    present = setup_of(config)
    grid += [] if present in grid else [present]
    subject = TuningSubject("m", 1, str(OBJECTIVE), "1", "Poisson arrivals", "", config, {})
    return TuningState(subject, Halving(grid, OBJECTIVE, most=24), "2026-11-22T10:00:00+00:00")


def tuned(
    folder: Path,
    measuring: Measuring,
    state: TuningState | None = None,
    *,
    bench: Bench | None = None,
    budget: float = 2000.0,
) -> tuple[TuningState, list[Now]]:
    told: list[Now] = []
    state, bench = state or new(), bench or Bench()
    how = {"budget": budget, "clock": measuring.clock, "tell": told.append}
    asyncio.run(Session(bench, measuring, state, folder, **how).run())  # type: ignore[arg-type]
    return state, told


@pytest.fixture(scope="module")
def improved(tmp_path_factory):
    """A tuning that has found batching, and what it told."""
    return tuned(tmp_path_factory.mktemp("improved"), Measuring(FLAT))


def test_batching_is_found_where_it_pays_and_proposed_with_its_interval(improved):
    state, told = improved
    outcome = outcome_of(state)
    assert outcome.best is not None and outcome.best.setup.batches
    assert outcome.is_gain and outcome.compared.low > 1.5
    assert outcome.fields["dynamic_batching"] is not None
    command = outcome.command(state.subject)
    assert command.startswith("servegate batching set m@1 ") and "--on" in command
    assert any(line.startswith("dynamic_batching {") for line in outcome.lines(state.subject))
    assert told[0].text.startswith("calibration: ") and told[-1].best


@pytest.mark.slow
def test_nothing_is_proposed_where_batching_gives_nothing(tmp_path):
    state, _ = tuned(tmp_path, Measuring(STEEP))
    outcome = outcome_of(state)
    assert not outcome.is_gain
    assert outcome.verdict.startswith("No gain")
    assert (outcome.command(state.subject), outcome.lines(state.subject)) == ("", ())


@pytest.mark.slow
def test_a_tuning_goes_on_after_a_kill_with_all_that_was_measured(tmp_path):
    whole, _ = tuned(tmp_path / "whole", Measuring(FLAT))
    killed = Measuring(FLAT, stops_after=7)
    with pytest.raises(Stopped):
        tuned(tmp_path / "killed", killed)
    state = TuningState.read(tmp_path / "killed")
    assert len(state.entries) == 7
    again = Measuring(FLAT)
    again.server.asked = killed.server.asked  # the same noise
    tuned(tmp_path / "killed", again, state)
    assert [one.setup for one in state.entries] == [one.setup for one in whole.entries]
    assert outcome_of(state).best == outcome_of(whole).best


@pytest.mark.slow
def test_more_time_goes_on_with_a_search_that_the_budget_has_ended(tmp_path):
    state, _ = tuned(tmp_path, Measuring(FLAT), budget=150.0)
    before, rival = len(state.entries), state.rival
    again = TuningState.read(tmp_path)
    assert again.rival == rival
    tuned(tmp_path, Measuring(FLAT), again)
    assert len(again.entries) > before
    assert not any("budget" in note for note in again.notes)
    assert outcome_of(again).is_gain


@pytest.mark.slow
def test_a_setup_that_does_not_load_is_out_and_the_search_goes_on(tmp_path):
    bench = Bench(refuses=lambda fields: fields.get("max_batch_size") == 8)
    state, _ = tuned(tmp_path, Measuring(FLAT), bench=bench)
    best = outcome_of(state).best
    assert best is not None and best.setup.max_batch_size != 8
    refused = [one for one in state.entries if one.why]
    assert all("no memory" in one.why for one in refused)


@pytest.mark.slow
def test_where_everything_is_missed_the_present_configuration_is_tried_with_less(tmp_path):
    state, _ = tuned(tmp_path, Busy(STEEP, most=1.5), budget=150.0)
    outcome = outcome_of(state)
    tried = [one for one in state.entries if one.step == LOWER]
    missed = [one.rate for one in state.entries if one.passed is False]
    assert outcome.best is None and not outcome.is_gain
    assert tried and all(one.setup == outcome.present for one in tried)
    assert [one.rate for one in tried] == sorted((one.rate for one in tried), reverse=True)
    assert tried[-1].passed and tried[-1].rate < min(missed)
    assert f"({outcome.present}), which met it at " in outcome.verdict
    assert "Use a longer --budget" in outcome.verdict


def test_an_objective_that_one_call_alone_misses_is_refused(tmp_path):
    with pytest.raises(Invalid, match="no configuration can meet p99<50ms"):
        tuned(tmp_path, Measuring(ServiceTime(0.2, 0.001)))


def test_the_report_is_plain_json_and_its_page_stands_alone(improved):
    state, _ = improved
    told = {"command": "servegate batching tune '<m>'", "machine": "a machine"}
    page = document(state, outcome_of(state), **told, versions={"servegate": "1"})
    assert json.loads(json.dumps(page, allow_nan=False)) == page
    text = render(page)
    assert "Improved." in text and "<svg" in text
    assert "&lt;m&gt;" in text and "<script" not in text
    assert BatchSetup(16, 1, batches=False) == outcome_of(state).present
