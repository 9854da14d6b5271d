"""Which calls count in a latency, and which seconds in a rate. Everything that reads a record asks.

**Which calls a latency quantile is over.** Those that got a whole answer (right, or another than
expected) and those that waited in vain: timeouts of either side, with the time they waited, and
calls that never started, with the time until the run gave them up. Other failures have no part in
it: a refusal after one millisecond would flatter the quantiles, and a service that refuses half of
its calls would look fast. They are told as errors, and an objective on errors is how one limits
them. `is_waited` is this rule. The service time, from the real start, leaves out calls without one.

**Which seconds a rate is over.** The whole seconds of the run, and of these only as many as the
record has, where the run was stopped. An answer counts where it came before their end: what an
overloaded server answers after the run does not make it faster. Within its second a start is taken
to be anywhere.
"""

from __future__ import annotations

import math

import numpy as np

from serve.workbench.loadtest.histogram import middles
from serve.workbench.loadtest.record import NEVER_STARTED, RIGHT, TIMED_OUT, WRONG, RecordCell
from serve.workbench.loadtest.reports.report import LoadRun

_WAITED = (RIGHT, WRONG, TIMED_OUT, NEVER_STARTED)
_TIMEOUTS = ("http_504", "grpc_DEADLINE_EXCEEDED")  # said by somebody on the way


def is_waited(outcome: str) -> bool:
    """Whether a call's latency counts: it got a whole answer, or waited in vain. See above."""
    return outcome in _WAITED or outcome.startswith(_TIMEOUTS)


def is_served(outcome: str) -> bool:
    """Whether its service time counts too: what `is_waited` says, of calls that did start."""
    return outcome != NEVER_STARTED and is_waited(outcome)


def span(run: LoadRun) -> float:
    """The seconds that rates are over; of a run shorter than a second, the part that it is."""
    seconds = min(run.seconds, float(run.outline.get("stopped_after", run.seconds)))
    last = max(run.record.windows, default=-1) + 1
    return min(float(math.floor(seconds)), last) if seconds >= 1 else seconds


def before_end(cell: RecordCell, left: float) -> float:
    """How many calls of a second ended within `left` seconds of its begin.

    A start is anywhere in the second, so this is the expected number, not a whole one.
    """
    if left <= 0:
        return 0.0
    places, counts = cell.latency.to_json()
    return float(np.clip(left - middles(np.array(places, np.int64)), 0.0, 1.0) @ np.array(counts))
