"""What a setup can take under an objective, by calculation alone."""

import numpy as np
import pytest

from serve.capacity.batcher import saturation, simulate
from serve.capacity.prediction import CALLS, predict
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.objectives import Objective

SERVICE = ServiceTime(0.004, 0.001)
WITHIN_50_MS = Objective.parse("p99<50ms")


def test_the_objective_is_met_at_the_rate_and_missed_a_little_above() -> None:
    setup = BatchSetup(8)
    found = predict(setup, SERVICE, WITHIN_50_MS)
    assert 0 < found.rate < saturation(setup, SERVICE)
    assert simulate(setup, SERVICE, found.rate, calls=CALLS).p99 <= 0.050
    assert simulate(setup, SERVICE, 1.03 * found.rate, calls=CALLS).p99 > 0.050
    assert found.p99 <= 0.050


def test_batching_is_worth_its_while_where_an_execution_has_a_fixed_part() -> None:
    alone = predict(BatchSetup(8, batches=False), SERVICE, WITHIN_50_MS)
    together = predict(BatchSetup(8), SERVICE, WITHIN_50_MS)
    assert together.rate > 3 * alone.rate


def test_a_looser_objective_allows_no_less() -> None:
    rates = [
        predict(BatchSetup(16), SERVICE, Objective(99, limit)).rate
        for limit in (0.02, 0.04, 0.1, 1.0)
    ]
    assert rates == sorted(rates)


def test_where_nothing_can_be_met_there_is_no_rate_and_the_reason_is_said() -> None:
    found = predict(BatchSetup(8), SERVICE, Objective.parse("p99<4ms"))
    assert (found.rate, found.why) == (0, "a single call takes 5 ms")
    found = predict(BatchSetup(4), SERVICE, WITHIN_50_MS, rows=8)
    assert (found.rate, found.why) == (0, "calls have 8 rows, but max_batch_size is 4")
    assert predict(BatchSetup(64, delay=0.2), SERVICE, WITHIN_50_MS).rate == 0


def test_calls_in_bursts_allow_less_than_calls_that_are_spread_out() -> None:
    bursts = tuple(np.tile([0.0] * 49 + [1.0], 20).tolist())
    spread = predict(BatchSetup(8), SERVICE, WITHIN_50_MS, interarrivals=(1.0,))
    burst = predict(BatchSetup(8), SERVICE, WITHIN_50_MS, interarrivals=bursts)
    assert burst.rate < spread.rate


def test_instances_that_only_share_one_processor_add_little() -> None:
    sharing = ServiceTime(0.004, 0.001, slowdown={1: 1.0, 2: 2.0})
    one = predict(BatchSetup(8, 1), sharing, WITHIN_50_MS)
    two = predict(BatchSetup(8, 2), sharing, WITHIN_50_MS)
    assert two.rate == pytest.approx(one.rate, rel=0.1)
