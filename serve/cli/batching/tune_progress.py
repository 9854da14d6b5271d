"""What is seen of a tuning while it goes.

| where         | what is seen                                                              |
|---------------|---------------------------------------------------------------------------|
| on a terminal | a bar of the budget, and two lines: what is measured, and the best so far |
| in a log      | a line for each measurement                                               |
| with --json   | an event `progress` for each measurement                                  |
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from serve.cli.output import say
from serve.cli.talk import Bars, Events, Talk, duration

if TYPE_CHECKING:
    from serve.load.tuning.session import Now

Watch = Callable[["Now"], None]


@contextmanager
def watching(talk: Talk) -> Iterator[Watch]:
    """What takes the progress."""
    if isinstance(talk, Events):
        yield lambda now: talk.tell("progress", **asdict(now))
    elif isinstance(talk, Bars):
        moving = Moving()
        try:
            yield moving
        finally:
            moving.close()
    else:
        yield lambda now: say(line(now))


def line(now: "Now") -> str:
    """`rung 1: batch 8, 1 instance at 120/s; best 100/s with …; 2 min left`."""
    best = f"; best {now.best}" if now.best else ""
    return f"{now.text}{best}; {duration(now.left)} left"


class Moving:
    """A bar of the budget with what is measured, drawn again with each measurement."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.BarColumn(bar_width=16),
            progress.TextColumn("{task.description}", markup=False),
            console=Console(stderr=True, highlight=False),
            auto_refresh=False,  # the machine is measured meanwhile
            transient=True,
        )
        self._task: progress.TaskID | None = None

    def __repr__(self) -> str:
        return "<Moving>"

    def __call__(self, now: "Now") -> None:
        text = f"{duration(now.left)} left  {now.text}"
        if now.best:
            text += f"\nbest: {now.best}"
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task(text, total=1.0)
        self._progress.update(self._task, description=text, completed=now.share)
        self._progress.refresh()

    def close(self) -> None:
        """Leave nothing that moves."""
        self._progress.stop()
