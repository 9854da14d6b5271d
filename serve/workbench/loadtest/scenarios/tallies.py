"""Numbers of parts of a run, from second to second, and sentences made of them.

A call has failed if it got no whole answer. An answer of another class than expected is an answer:
how often a model is right is its own affair, and is told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from serve.workbench.loadtest.record import RIGHT, WRONG, RecordWindow
from serve.workbench.loadtest.reports.amounts import share_text
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import latencies_of

ANSWERED = (RIGHT, WRONG)
Windows = list[RecordWindow]


def is_stopped(run: LoadRun) -> bool:
    """Whether somebody ended the run early."""
    return "stopped_after" in run.outline


def between(run: LoadRun, first: float, last: float) -> Windows:
    """The windows of the seconds in [first, last)."""
    return [one for second, one in run.record.windows.items() if first <= second < last]


def outcomes(windows: Iterable[RecordWindow]) -> Counter[str]:
    """Calls by outcome."""
    counts: Counter[str] = Counter()
    for window in windows:
        for key, cell in window.cells.items():
            counts[key.outcome] += cell.calls
    return counts


def failures(windows: Iterable[RecordWindow]) -> Counter[str]:
    """Calls without a whole answer, by outcome."""
    return Counter({one: n for one, n in outcomes(windows).items() if one not in ANSWERED})


def answers(windows: Iterable[RecordWindow]) -> int:
    """Calls with a whole answer."""
    counts = outcomes(windows)
    return sum(counts[one] for one in ANSWERED)


def p99(windows: Iterable[RecordWindow]) -> float:
    """Seconds, from the intended starts; nan without calls. Who waited in vain counts, too."""
    return latencies_of(windows).quantile(0.99)


def failed_sentence(windows: Windows) -> str:
    """`no call of 1200 failed`, or how many did, and of what."""
    calls, failed = outcomes(windows).total(), failures(windows)
    if not failed:
        return f"none of {calls} calls failed"
    kinds = ", ".join(f"{n} {outcome}" for outcome, n in failed.most_common(4))
    share = share_text(failed.total() / calls)
    return f"{failed.total()} of {calls} calls failed ({share}): {kinds}"


def top1_sentence(windows: Windows) -> str:
    """How many answers were another class than expected; empty where none was."""
    counts = outcomes(windows)
    if not counts[WRONG]:
        return ""
    share = share_text(counts[RIGHT] / (counts[RIGHT] + counts[WRONG]))
    return f"{share} of the responses had the expected class"
