"""What is seen of a run while it goes: how it is now, in one line.

| where            | what is seen                                             |
|------------------|----------------------------------------------------------|
| on a terminal    | one line that is drawn again, gone at the end            |
| in a log         | a line every few seconds                                 |
| with --json      | an event `progress` about every second                   |

`12/60 s  199 calls/s of 200  p50 3.1 ms  p99 8.2 ms  0 failed  lag 0.2 ms  0 waiting`
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from serve.cli.output import say
from serve.cli.still_bar import StillBar
from serve.cli.talk import Bars, CommandTalk, JsonEvents

if TYPE_CHECKING:
    from serve.workbench.loadtest.observed_run import RunProgress

Watch = Callable[["RunProgress"], None]
_EVERY = 5.0  # seconds of the run between two lines of a log
_RECENT = 3  # seconds over which the intended rate is told, as the rest of the line


@contextmanager
def watching(talk: CommandTalk, intended: Sequence[int] = ()) -> Iterator[Watch]:
    """What takes the progress of a run; `intended` are the starts meant for each of its seconds."""
    if isinstance(talk, JsonEvents):
        yield lambda now: talk.tell("progress", **_finite(asdict(now)))
    elif isinstance(talk, Bars):
        bar = StillBar()
        try:
            yield partial(_drawn, bar, intended)
        finally:
            bar.close()
    else:
        yield LoggedProgress(intended)


def line(now: "RunProgress", intended: Sequence[int] = ()) -> str:
    """How a run is now."""
    from serve.workbench.loadtest.reports.amounts import figures, time_text

    rate = f"{figures(now.rate)} calls/s"
    if meant := intended[max(0, int(now.second) - _RECENT) : int(now.second)]:
        rate += f" of {figures(sum(meant) / len(meant))}"
    parts = [
        f"{min(now.second, now.seconds):.0f}/{now.seconds:.0f} s",
        rate,
        f"p50 {time_text(now.p50)}",
        f"p99 {time_text(now.p99)}",
        f"{now.failed} failed",
        f"lag {time_text(now.lag)}",
        f"{now.waiting} waiting",
    ]
    return "  ".join(parts)


class LoggedProgress:
    """A line every few seconds."""

    def __init__(self, intended: Sequence[int] = (), write: Callable[[str], None] = say) -> None:
        self._intended = intended
        self._write = write
        self._told = 0.0

    def __repr__(self) -> str:
        return f"<LoggedProgress until {self._told:.0f} s>"

    def __call__(self, now: "RunProgress") -> None:
        if now.second < self._told:  # the next run
            self._told = 0.0
        if now.second - self._told >= _EVERY:
            self._told = now.second
            self._write(line(now, self._intended))


def _drawn(bar: StillBar, intended: Sequence[int], now: "RunProgress") -> None:
    bar.show(line(now, intended), min(now.second, now.seconds), now.seconds)


def _finite(page: dict[str, Any]) -> dict[str, Any]:
    """JSON has no nan."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in page.items()
    }
