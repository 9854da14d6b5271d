"""What a long command says while it runs: bars on a terminal, lines elsewhere, events with --json.

People read stderr, programs stdout. An event is one line of JSON with a `type`; the last one is
`{"type": "result", …}`, also after a failure.
"""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from serve.cli.output import say

_EVERY = 3.0  # seconds between two lines
_EVENTS_EVERY = 0.5


class CommandTalk(Protocol):
    """One way to tell how far a command has come. `advance` may be called from any thread."""

    def tell(self, kind: str, text: str = "", **facts: Any) -> None:
        """Something happened: `text` for people (empty: nothing), `kind` and `facts` for programs.

        A `text` alone, of kind `note`, is for both.
        """

    def begin(self, stage: str, total: int, done: int = 0) -> None:
        """A stage of `total` bytes begins, of which `done` are there already."""

    def advance(self, count: int) -> None:
        """So many more bytes of the stage are done; below 0: they have to be done again."""

    def end(self) -> None:
        """The stage is over."""


class Meter:
    """How many bytes of a stage are done, and how fast that goes."""

    def __init__(self, stage: str, total: int, done: int, clock: Callable[[], float]) -> None:
        self.stage = stage
        self.total = total
        self._done = self._first = done
        self._clock = clock
        self._began = self._told = clock()
        self._lock = threading.Lock()

    @property
    def done(self) -> int:
        """Bytes that are done."""
        return self._done

    def add(self, count: int) -> None:
        """Count more bytes."""
        with self._lock:
            self._done += count

    def is_due(self, every: float) -> bool:
        """Whether it was last told so many seconds ago; True at most once per `every`."""
        with self._lock:
            if self._clock() - self._told < every:
                return False
            self._told = self._clock()
            return True

    def line(self) -> str:
        """`uploading: 12.0 MB of 200 MB, 40 MB/s, 5 s left`."""
        seconds = self._clock() - self._began
        rate = max(self._done - self._first, 0) / seconds if seconds > 0 else 0.0
        text = f"{self.stage}: {amount(self._done)} of {amount(self.total)}"
        if rate > 0:
            text += f", {amount(rate)}/s, {duration((self.total - self._done) / rate)} left"
        return text


class LogTalk:
    """For a log: sentences, and now and then a line that says how far a stage has come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._meter: Meter | None = None

    def tell(self, kind: str, text: str = "", **facts: Any) -> None:
        """Only the sentence."""
        if text:
            say(text)

    def begin(self, stage: str, total: int, done: int = 0) -> None:
        """Nothing is said yet: most stages are short."""
        self._meter = Meter(stage, total, done, self._clock)

    def advance(self, count: int) -> None:
        """Count, and say so every few seconds."""
        if self._meter is not None:
            self._meter.add(count)
            if self._meter.is_due(_EVERY):
                say(self._meter.line())

    def end(self) -> None:
        """Forget the stage."""
        self._meter = None


class JsonEvents:
    """For programs: one line of JSON per event on stdout, nothing else there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._meter: Meter | None = None
        self._lock = threading.Lock()

    def tell(self, kind: str, text: str = "", **facts: Any) -> None:
        """The facts; a note has its text."""
        shown = {"text": text} if kind == "note" else {}
        self._print({"type": kind, **shown, **facts})

    def begin(self, stage: str, total: int, done: int = 0) -> None:
        """The first event of a stage's progress."""
        self._meter = Meter(stage, total, done, self._clock)
        self._progress(self._meter)

    def advance(self, count: int) -> None:
        """Count, and say so twice a second."""
        if self._meter is not None:
            self._meter.add(count)
            if self._meter.is_due(_EVENTS_EVERY):
                self._progress(self._meter)

    def end(self) -> None:
        """The last event of a stage's progress."""
        if self._meter is not None:
            self._progress(self._meter)
        self._meter = None

    def _progress(self, meter: Meter) -> None:
        page = {"stage": meter.stage, "done": meter.done, "total": meter.total}
        self._print({"type": "progress", **page})

    def _print(self, page: dict[str, Any]) -> None:
        with self._lock:
            print(json.dumps(page), flush=True)


class Bars:
    """For a terminal: one bar per stage with rate and time left, and sentences above it."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = progress.Progress(
            progress.TextColumn("{task.description:<11}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(compact=True),
            console=self._console,
        )
        self._task: progress.TaskID | None = None

    def tell(self, kind: str, text: str = "", **facts: Any) -> None:
        """Only the sentence."""
        if text:
            self._console.print(text, markup=False)

    def begin(self, stage: str, total: int, done: int = 0) -> None:
        """Draw a bar."""
        self._progress.start()
        self._task = self._progress.add_task(stage, total=total, completed=done)

    def advance(self, count: int) -> None:
        """Move it."""
        if self._task is not None:
            self._progress.advance(self._task, count)

    def end(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = None


def talk(*, json: bool) -> CommandTalk:
    """What fits where the command runs."""
    if json:
        return JsonEvents()
    return Bars() if sys.stderr.isatty() else LogTalk()


@contextlib.contextmanager
def stage(talk: CommandTalk, name: str, total: int, done: int = 0) -> Iterator[None]:
    """A stage, ended however it ends."""
    talk.begin(name, total, done)
    try:
        yield
    finally:
        talk.end()


def amount(count: float) -> str:
    """Bytes as people read them: `12.3 MB`, in steps of a thousand."""
    scaled, unit = count, "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if scaled < 1000:
            break
        scaled, unit = scaled / 1000, larger
    return f"{scaled:.0f} {unit}" if unit == "B" or scaled >= 100 else f"{scaled:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds as people read them: `5 s`, `3 min`, `2 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
