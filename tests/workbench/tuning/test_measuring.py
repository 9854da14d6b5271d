"""Measurements: their plans, what Triton counts meanwhile, and a generator in its own way."""

import asyncio
from collections.abc import Sequence

import pytest
from refusals import refusal

from serve.capacity.measurements import Calibration, OpenLoopTrial
from serve.capacity.service import ExecutionPoint
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.workbench.loadtest.plan import Lane, LaneProtocol, LoadPlan, Payload, RateShape
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.tuning.execution_counts import Statistics, rises
from serve.workbench.tuning.measurements import MeasuredWorkload, Measuring, parse_rows

from ..loadtest.records import run_of

LANE = Lane("grpc", LaneProtocol.GRPC, "127.0.0.1:9", "/m", (Payload(b"x"),))
OBJECTIVE = Objective(99, 0.05)
SETUP = BatchSetup(8)


class Maker:
    """Answers each plan with the next of these runs, and remembers the plans."""

    def __init__(self, runs: Sequence[LoadRun]) -> None:
        self.plans: list[LoadPlan] = []
        self._runs = list(runs)

    async def __call__(self, plan: LoadPlan, statistics: Statistics) -> LoadRun:
        self.plans.append(plan)
        return self._runs.pop(0)


def measuring(*runs: LoadRun) -> tuple[Measuring, Maker]:
    maker, statistics = Maker(runs), Statistics("127.0.0.1:9", "m", 1)
    workload, stop = MeasuredWorkload((LANE,)), asyncio.Event()
    return Measuring(workload, OBJECTIVE, statistics, unit=4.0, stop=stop, make=maker), maker


def test_a_calibration_is_a_closed_loop_and_a_trial_an_open_one():
    one, maker = measuring(run_of(4, is_open=False), run_of(4))
    asyncio.run(one.measure(Calibration(SETUP, 16)))
    asyncio.run(one.measure(OpenLoopTrial(SETUP, 100.0, weight=2.0)))
    closed, opened = maker.plans
    assert closed.closed is not None and closed.closed.users == 16 and closed.seconds == 4.0
    assert opened.arrivals is not None and opened.arrivals.rate == 100.0 and opened.seconds == 8.0
    assert closed.seed != opened.seed


def test_a_slow_trial_lasts_until_there_are_enough_calls_for_a_quantile():
    one, maker = measuring(run_of(10, 10.0), run_of(24, 1.0))
    asyncio.run(one.measure(OpenLoopTrial(SETUP, 10.0)))
    asyncio.run(one.measure(OpenLoopTrial(SETUP, 0.5)))
    assert [plan.seconds for plan in maker.plans] == [10.0, 24.0]


def test_a_trial_in_which_the_generator_was_the_limit_is_made_once_more():
    slow, good = run_of(4, busiest=0.99), run_of(4)
    one, maker = measuring(slow, good)
    found = asyncio.run(one.measure(OpenLoopTrial(SETUP, 100.0)))
    assert (found.repeated, found.doubt, len(maker.plans)) == (True, "", 2)


def test_a_trace_is_as_fast_as_the_rate_and_begins_again_at_its_end():
    workload = MeasuredWorkload((LANE,), trace=(0.0, 1.0, 1.5, 6.0))
    arrivals = workload.at(10.0, 4.0)
    assert arrivals.shape is RateShape.TRACE
    assert len(arrivals.times) == pytest.approx(40, abs=4)
    assert list(arrivals.times) == sorted(arrivals.times) and arrivals.times[-1] < 4.0
    gaps = [arrivals.times[1] - arrivals.times[0], arrivals.times[2] - arrivals.times[1]]
    assert gaps[0] == pytest.approx(2 * gaps[1])


def test_what_says_no_rows_is_refused():
    for text in ("", "0", "x", "1:0", "1:x", "2,,3"):
        error = refusal(Invalid, parse_rows, text)
        assert "is not a number of rows per call" in str(error)


def page(queue: tuple[int, int], **sizes: tuple[int, int]) -> dict[str, object]:
    """`model_stats`: by size, executions and nanoseconds of their compute_infer."""
    return {
        "inference_stats": {"queue": {"count": queue[0], "ns": queue[1]}},
        "batch_stats": [
            {
                "batch_size": int(name[1:]),
                "compute_input": {"count": count, "ns": 10 * count},
                "compute_infer": {"count": count, "ns": ns},
                "compute_output": {"count": count, "ns": 20 * count},
            }
            for name, (count, ns) in sizes.items()
        ],
    }


def test_executions_are_counted_by_size_with_all_that_they_take():
    before = page((5, 100), b1=(5, 5000))
    after = page((25, 2100), b1=(15, 15000), b4=(2, 4000))
    found = rises(before, after)
    assert found.points == (ExecutionPoint(1, 1030e-9, 10.0), ExecutionPoint(4, 2030e-9, 2.0))
    assert found.queue == 2000 / 20 / 1e9


def test_a_version_that_was_loaded_anew_counts_from_zero():
    found = rises(page((9, 900), b1=(9, 9000)), page((2, 50), b1=(2, 2000)))
    assert found.points == (ExecutionPoint(1, 1030e-9, 2.0),)
