"""Measurements: their plans, and what Triton counts; rounds of winner and baseline that confirm."""

import asyncio
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from refusals import refusal

from serve.capacity.measurements import Calibration, OpenLoopTrial
from serve.capacity.service import ExecutionPoint
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.workbench.loadtest.plan import Lane, LaneProtocol, LoadPlan, Payload, RateShape
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.tuning.confirmation import ConfirmationRound, Duel, Staircase, compared
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


# --- rounds ---------------------------------------------------------------------------------------


def duel(baseline: float, winner: float, rounds: int, noise: float = 0.0) -> Duel:
    """Both begin far from what they bear."""
    draws = np.random.default_rng(0)
    one = Duel(baseline * 0.6, winner * 1.5)
    for _ in range(rounds):
        bears = [rate * math.exp(noise * draws.normal()) for rate in (baseline, winner)]
        sides = one.sides["baseline"].rate, one.sides["winner"].rate
        one.told(sides[0] <= bears[0], sides[1] <= bears[1])
    return one


def test_a_staircase_comes_to_what_a_side_bears():
    stairs = Staircase(100.0)
    for _ in range(30):
        stairs.told(stairs.rate <= 730)
    assert stairs.rate == pytest.approx(730, rel=0.06)


def test_a_staircase_that_was_misled_at_first_hurries_back():
    """Bad luck lets it settle at a third of what the side bears."""
    stairs = Staircase(250.0)
    for met in (False, True, False, True, False, True):
        stairs.told(met)
    assert stairs.is_settled
    assert stairs.rate < 270
    for _ in range(10):
        stairs.told(stairs.rate <= 730)
    assert 600 < stairs.rate < 900


@pytest.mark.parametrize(("winner", "noise"), [(250, 0.02), (250, 0.0), (100, 0.02)])
def test_a_gain_is_seen_with_an_interval_no_narrower_than_a_step(winner, noise):
    one = duel(100, winner, 12, noise=noise)
    found = one.compared()
    assert found.low < winner / 100 < found.high
    assert found.high / found.low >= 1.04**2 - 1e-9
    assert found.is_gain is (winner > 100)
    assert one.order != duel(100, winner, 11, noise=noise).order  # the sides take turns


def test_too_few_rounds_have_no_interval_and_are_no_gain():
    found = duel(100, 250, 5).compared()
    assert 0 < found.rounds < 3 or math.isfinite(found.low)
    few = compared(duel(100, 250, 12).rounds[:2])
    assert math.isnan(few.low)
    assert not few.is_gain


def test_rounds_before_both_sides_stand_where_they_belong_do_not_count():
    """What both bear is 100; the first steps of a side that begins there lead far away."""
    one = Duel(127.0, 70.0)
    for _ in range(12):
        baseline, winner = (side.rate <= 100 for side in one.sides.values())
        one.told(baseline, winner)
    assert len(one.rounds) >= 3
    assert all(0.9 < each.winner / each.baseline < 1.1 for each in one.rounds)


def test_a_baseline_that_never_meets_the_objective_counts_from_the_first_round_on():
    one = Duel(60.0, 100.0)
    one.told(False, True)
    assert one.rounds == [ConfirmationRound(60.0, 100.0)]


def test_a_duel_goes_on_where_it_was():
    one = duel(100, 250, 7)
    again = Duel.from_json(json.loads(json.dumps(one.to_json())))
    assert (again.sides, again.rounds) == (one.sides, one.rounds)
