"""The stages of a child process, while it works: what people see of them, and programs are told.

| where            | what is seen of a stage                                                  |
|------------------|--------------------------------------------------------------------------|
| on a terminal    | a line that moves, with a bar where the share is known; then its time    |
| in a log         | when it began, counted from the first; in long ones, how far it has come |
| with --json      | every event                                                              |
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from serve.cli.output import say
from serve.cli.talk import Bars, CommandTalk, JsonEvents

OnEvent = Callable[[Mapping[str, Any]], None]
_EVERY = 3.0  # seconds between two lines of a log about one stage
_WIDTH = 48  # of a stage's text on a terminal: the longest, and its time ends below the others'
_LAST = ("done", "failed")  # the command has a last word of its own


@contextmanager
def stages(talk: CommandTalk) -> Iterator[OnEvent]:
    """What takes the events of a child; the line that moves is gone at the end."""
    if isinstance(talk, JsonEvents):
        yield lambda event: _tell(talk, event)
    elif isinstance(talk, Bars):
        moving = Moving()
        try:
            yield moving
        finally:
            moving.close()
    else:
        yield LoggedStages()


def _tell(talk: CommandTalk, event: Mapping[str, Any]) -> None:
    facts = {name: value for name, value in event.items() if name not in ("type", "text")}
    if event["type"] not in _LAST:
        talk.tell(str(event["type"]), str(event.get("text", "")), **facts)


class LoggedStages:
    """Lines for a log, each with the seconds since the first."""

    def __init__(
        self, write: Callable[[str], None] = say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._began: float | None = None
        self._told = 0.0
        self._text = ""

    def __repr__(self) -> str:
        return f"<LoggedStages {self._text!r}>"

    def __call__(self, event: Mapping[str, Any]) -> None:
        kind, text, now = event["type"], str(event.get("text", "")), self._now(event)
        if kind == "share":
            if now - self._told >= _EVERY:
                self._line(f"{self._text}: {event['done']} of {event['total']}", now)
        elif kind not in _LAST and text not in ("", self._text):
            self._text = text if kind != "note" else self._text
            self._line(f"note: {text}" if kind == "note" else text, now)

    def _now(self, event: Mapping[str, Any]) -> float:
        """When it happened, where the event says so; all of them do, or none."""
        return float(event.get("at", 0)) or self._clock()

    def _line(self, text: str, now: float) -> None:
        self._told = now
        self._began = now if self._began is None else self._began
        self._write(f"{now - self._began:6.1f} s  {text}")


class Moving:
    """One line that moves, and above it what is over."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=20),
            progress.TextColumn("{task.fields[share]}", markup=False),
            progress.TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task: progress.TaskID | None = None
        self._name = ""
        self._began = 0.0

    def __repr__(self) -> str:
        return f"<Moving {self._name!r}>"

    def __call__(self, event: Mapping[str, Any]) -> None:
        kind, text = event["type"], str(event.get("text", ""))
        now = float(event.get("at", 0)) or time.monotonic()
        if kind == "stage":
            self._end(now)
            self._name, self._began = text, now
            self._progress.start()
            self._task = self._progress.add_task(text, total=None, share="")
        elif kind == "note":
            self._console.print(f"note: {text}", style="yellow", markup=False)
        elif kind == "share" and self._task is not None:
            done, total = event["done"], event["total"]
            said = f"{done} of {total}"
            self._progress.update(self._task, completed=done, total=total, share=said)
        elif kind in ("done", "state"):
            self._end(now)
            self._progress.stop()
            if text:
                self._console.print(text, markup=False)

    def close(self) -> None:
        """Leave nothing that moves."""
        self._progress.stop()

    def _end(self, now: float) -> None:
        """The stage is over: a line with its time."""
        if self._task is None:
            return
        self._progress.remove_task(self._task)
        self._task = None
        seconds = f"{now - self._began:6.1f} s"
        self._console.print(f"{self._name:<{_WIDTH}}{seconds}", style="dim", markup=False)
