"""One run with everything around it: what the other side sees, what a scenario does, how it goes.

An action that fails is told as a mark and a problem, and the run goes on. Times are in seconds from
the run's second 0, which comes after the warm-up.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from serve.core.errors import ServegateError, first_of
from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.observed import Observed, ObservedEvent
from serve.workbench.loadtest.plan import LoadPlan
from serve.workbench.loadtest.record import NEVER_STARTED, RIGHT, Record, RecordWindow
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.runner import run

_LATER = 0.3  # seconds after a second's end in which its windows come
_BACK = 3.0  # seconds that a progress tells of
_FINISHING = 10.0  # seconds for actions that are under way when the run is over
_LONG = 1.0  # seconds from which on a mark says how long its action took


@dataclass(frozen=True, slots=True)
class Action:
    """What a scenario does at a second. `do` returns what is to be said of it, or nothing."""

    at: float
    text: str
    do: Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The last three seconds of a run that goes on.

    `second` of `seconds`. `sent`, `right` and `failed` count calls that ended; `rate` is right
    answers per second; p50 and p99 are of their latency in seconds, `lag` is the p99 of late
    starts; nan where nothing has ended. `waiting`: arrivals without a connection, at their most.
    """

    second: float
    seconds: float
    sent: int
    right: int
    failed: int
    rate: float
    p50: float
    p99: float
    lag: float
    waiting: int


class Observing(Protocol):
    """What `Observer` does for a run."""

    async def begin(self) -> None:
        """Note how everything is before the run."""
        ...

    async def watch(self, since: float) -> None:
        """Ask again and again until cancelled; `since`: second 0 by `time.monotonic`."""
        ...

    async def end(self) -> Observed:
        """What was seen."""
        ...


async def perform(
    plan: LoadPlan,
    *,
    label: str,
    objective: str = "",
    workers: int = 1,
    listen: str = "",
    expect: int = 0,
    observer: Observing | None = None,
    actions: Sequence[Action] = (),
    tell: Callable[[RunProgress], None],
    stop: asyncio.Event | None = None,
) -> LoadRun:
    """Make one run; see `running.run` for `workers`, `listen`, `expect`, and what is raised.

    Setting `stop` (from a handler of Ctrl-C) ends it early: the run that is returned has what was
    recorded so far, `stopped_after` in its outline, and a problem that says so. Cancelling it
    raises, and leaves no process and no record.
    """
    stage = _Stage(plan, actions, observer, tell)
    if observer is not None and not plan.warm_up:
        await observer.begin()
    make = partial(run, plan, workers=workers, listen=listen, expect=expect, stop=stop)
    try:
        record = await _on(stage, make)
    finally:
        observed = await stage.observed()
    outline = plan.outline()
    if stop is not None and stop.is_set():
        outline["stopped_after"], observed = stage.stopped(observed)
    return LoadRun(label, outline, record, observed, objective, expect or workers)


async def _on(stage: _Stage, make: Callable[..., Awaitable[Record]]) -> Record:
    """Let the calls be made, with everything around them."""
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(each) for each in (stage.watch(), stage.show())]
            playing = tasks.create_task(stage.play())
            record = await make(
                on_begin=stage.begin, on_window=stage.take, on_problem=stage.problems.append
            )
            await stage.finish(playing)
            for each in background:
                each.cancel()
    except BaseExceptionGroup as errors:
        ours = errors.subgroup(ServegateError)
        if ours is None:
            raise
        raise first_of(ours) from None
    return record


class _Stage:
    """What goes on beside the calls of one run."""

    def __init__(
        self,
        plan: LoadPlan,
        actions: Sequence[Action],
        observer: Observing | None,
        tell: Callable[[RunProgress], None],
    ) -> None:
        self.problems: list[str] = []
        self._is_over = asyncio.Event()
        self._plan = plan
        self._actions = actions
        self._observer = observer
        self._tell = tell
        self._marks: list[ObservedEvent] = []
        self._has_begun = asyncio.Event()
        self._zero = 0.0  # by time.monotonic
        self._recent: deque[tuple[float, RecordWindow]] = deque()

    def __repr__(self) -> str:
        return f"<_Stage {len(self._actions)} actions, {len(self._marks)} marks>"

    def begin(self) -> None:
        """It is second 0 now."""
        self._zero = time.monotonic()
        self._has_begun.set()

    def take(self, _: int, window: RecordWindow) -> None:
        """Keep it for the next progress."""
        self._recent.append((time.monotonic(), window))

    async def show(self) -> None:
        """Tell the progress, about once a second."""
        await self._has_begun.wait()
        while True:
            await asyncio.sleep(1.0 - self._second() % 1.0 + _LATER)
            self._tell(self._progress(self._second()))

    async def watch(self) -> None:
        """Let the other side be asked. After a warm-up it begins late, to count without it."""
        await self._has_begun.wait()
        if self._observer is None:
            return
        try:
            if self._plan.warm_up:
                await self._observer.begin()
            await self._observer.watch(self._zero)
        except Exception as error:
            self.problems.append(f"observation of the server ended early: {_said(error)}")

    async def play(self) -> None:
        """Do what the scenario wants, each thing once; what is not done in time is told."""
        await self._has_begun.wait()
        async with asyncio.TaskGroup() as tasks:
            for each in self._actions:
                tasks.create_task(self._play(each))

    async def finish(self, playing: asyncio.Task[None]) -> None:
        """The calls are over: what has not been done is not begun any more."""
        self._is_over.set()
        if not self._has_begun.is_set():
            playing.cancel()
        await asyncio.wait((playing,))

    async def observed(self) -> Observed:
        """What everybody has seen."""
        seen = Observed()
        if self._observer is not None:
            try:
                seen = await self._observer.end()
            except Exception as error:
                self.problems.append(f"the server could not be observed: {_said(error)}")
        marks = sorted((*seen.marks, *self._marks), key=lambda mark: mark.at)
        return replace(seen, marks=tuple(marks), problems=(*self.problems, *seen.problems))

    def stopped(self, observed: Observed) -> tuple[float, Observed]:
        """Seconds until now, and what was seen with a problem that says so before all others."""
        second = self._second() if self._has_begun.is_set() else 0.0
        lost = self._recent[-1][1].generator.in_flight if self._recent else 0
        text = f"stopped after {second:.1f} of {self._plan.seconds:g} s"
        text += f"; the results end there and do not include about {lost} calls in flight"
        return second, replace(observed, problems=(text, *observed.problems))

    async def _play(self, action: Action) -> None:
        """One action at its second: it waits for that no longer than the run lasts."""
        if not await self._comes(action):
            self.problems.append(f"{action.text}: skipped, because the run ended first")
            return
        began = self._second()
        try:
            async with asyncio.timeout(None) as limit:
                ending = asyncio.ensure_future(self._limit(limit))
                try:
                    text = await action.do() or action.text
                finally:
                    ending.cancel()
        except Exception as error:
            text = f"{action.text} failed: {_said(error)}"
            self.problems.append(text)
        ended = self._second()
        took = f" (took {ended - began:.1f} s)" if ended - began > _LONG else ""
        self._marks.append(ObservedEvent(ended, text + took))

    async def _comes(self, action: Action) -> bool:
        """Wait for an action's second; False when the run is over before."""
        try:
            async with asyncio.timeout(max(0.0, action.at - self._second())):
                await self._is_over.wait()
        except TimeoutError:
            return True
        return False

    async def _limit(self, limit: asyncio.Timeout) -> None:
        """Let an action finish that is under way when the run is over, but not for ever."""
        await self._is_over.wait()
        limit.reschedule(asyncio.get_running_loop().time() + _FINISHING)

    def _second(self) -> float:
        return time.monotonic() - self._zero

    def _progress(self, second: float) -> RunProgress:
        while self._recent and self._recent[0][0] < time.monotonic() - _BACK:
            self._recent.popleft()
        windows = [window for _, window in self._recent]
        cells = [
            (key, cell)
            for window in windows
            for key, cell in window.cells.items()
            if key.outcome != NEVER_STARTED
        ]
        sent = sum(cell.calls for _, cell in cells)
        right = sum(cell.calls for key, cell in cells if key.outcome == RIGHT)
        latency = Histogram.merged(cell.latency for _, cell in cells)
        p50, p99 = latency.quantiles((0.5, 0.99))
        lag = Histogram.merged(window.generator.lag for window in windows).quantile(0.99)
        return RunProgress(
            second=second,
            seconds=self._plan.seconds,
            sent=sent,
            right=right,
            failed=sent - right,
            rate=right / min(_BACK, max(second // 1.0, 1.0)),
            p50=p50,
            p99=p99,
            lag=lag,
            waiting=max((window.generator.waiting for window in windows), default=0),
        )


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
