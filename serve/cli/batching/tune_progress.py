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
from functools import partial
from typing import TYPE_CHECKING

from serve.cli.output import say
from serve.cli.still_bar import StillBar
from serve.cli.talk import Bars, CommandTalk, JsonEvents, duration

if TYPE_CHECKING:
    from serve.load.tuner.session import Now

Watch = Callable[["Now"], None]


@contextmanager
def watching(talk: CommandTalk) -> Iterator[Watch]:
    """What takes the progress."""
    if isinstance(talk, JsonEvents):
        yield lambda now: talk.tell("progress", **asdict(now))
    elif isinstance(talk, Bars):
        bar = StillBar()
        try:
            yield partial(_drawn, bar)
        finally:
            bar.close()
    else:
        yield lambda now: say(line(now))


def line(now: "Now") -> str:
    """`rung 1: batch 8, 1 instance at 120/s; best 100/s with …; 2 min left`."""
    best = f"; best {now.best}" if now.best else ""
    return f"{now.text}{best}; {duration(now.left)} left"


def _drawn(bar: StillBar, now: "Now") -> None:
    text = f"{duration(now.left)} left  {now.text}"
    if now.best:
        text += f"\nbest: {now.best}"
    bar.show(text, now.share)
