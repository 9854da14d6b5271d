"""What a setup can take under an objective, by calculation alone.

The batcher is simulated at one rate after the other, always with the same calls. The quantile need
not grow with the rate (with a delay, few calls wait longer for company than many), so the search
comes from above: the highest of some rates that passes, then between it and the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serve.capacity.batcher import Floats, Simulated, poisson, saturation, simulate
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.objectives import Objective

CALLS = 2400
_SHARES = (0.97, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.03, 0.003)  # of saturation, to begin with
_PRECISION = 1.015


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a setup can take.

    `rate`: the highest number of calls per second that meets the objective; 0 where none does.
    `p99` (seconds) and `rows_per_execution`: at that rate. `why`: what limits it, for people.
    """

    setup: BatchSetup
    rate: float
    p99: float
    rows_per_execution: float
    why: str


@dataclass(frozen=True, slots=True)
class PredictedWorkload:
    """What is the same for all setups: the calls, and what each costs besides its execution.

    `rows`: of each call. `overhead`: seconds. `interarrivals`: seconds between calls, of which only
    the proportions count; without them calls come by a Poisson process.
    """

    rows: int = 1
    overhead: float = 0.0
    interarrivals: tuple[float, ...] = ()

    def at(
        self, rate: float, setup: BatchSetup, service: ServiceTime, calls: int = CALLS
    ) -> Simulated:
        """What becomes of the calls when so many come per second."""
        times = _unit(self.interarrivals, calls) / rate
        return simulate(setup, service, times, rows=self.rows, overhead=self.overhead)


def predict(
    setup: BatchSetup,
    service: ServiceTime,
    objective: Objective,
    *,
    overhead: float = 0.0,
    rows: int = 1,
    interarrivals: Sequence[float] | None = None,
) -> Prediction:
    """The highest rate at which the objective is met; some ten simulations."""
    if setup.max_batch_size and rows > setup.max_batch_size:
        why = f"calls have {rows} rows, but max_batch_size is {setup.max_batch_size}"
        return Prediction(setup, 0.0, 0.0, 0.0, why)
    work = PredictedWorkload(rows, overhead, tuple(interarrivals or ()))
    most = saturation(setup, service, rows)
    above = most
    for share in _SHARES:
        seen = work.at(share * most, setup, service)
        if _passes(seen, objective):
            return _between(share * most, above, seen, setup, service, objective, work)
        above = share * most
    alone = overhead + service.time(rows) + (setup.delay if setup.batches else 0.0)
    why = f"a single call takes {alone * 1e3:.3g} ms"
    if alone < objective.limit:
        why = "no rate meets the objective"
    return Prediction(setup, 0.0, seen.p99, seen.rows_per_execution, why)


def _between(
    passed: float,
    failed: float,
    seen: Simulated,
    setup: BatchSetup,
    service: ServiceTime,
    objective: Objective,
    work: PredictedWorkload,
) -> Prediction:
    """Bisect between a rate that passes, where `seen` happens, and one that does not."""
    most = _SHARES[0] * saturation(setup, service, work.rows)
    if passed >= most * (1 - 1e-9):
        why = "the instances are busy all the time"
        return Prediction(setup, passed, seen.p99, seen.rows_per_execution, why)
    while failed > passed * _PRECISION:
        rate = (passed * failed) ** 0.5
        now = work.at(rate, setup, service)
        if _passes(now, objective):
            passed, seen = rate, now
        else:
            failed = rate
    return Prediction(
        setup, passed, seen.p99, seen.rows_per_execution, f"higher rates miss {objective}"
    )


def _passes(seen: Simulated, objective: Objective) -> bool:
    return seen.stable and seen.quantile(objective.quantile) <= objective.limit


def _unit(interarrivals: tuple[float, ...], calls: int) -> Floats:
    """So many arrivals at one a second."""
    if not interarrivals:
        return poisson(calls, 0)
    gaps = np.resize(np.asarray(interarrivals, np.float64), calls)
    times: Floats = np.cumsum(gaps * (calls / gaps.sum()))
    return times
