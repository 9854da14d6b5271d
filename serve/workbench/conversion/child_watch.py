"""Follows the child of a conversion to its end: what it says, what it takes, and how it ended.

| how it ends                                     | what is raised                          |
|-------------------------------------------------|-----------------------------------------|
| it says `done`, exit status 0                   | nothing                                 |
| it says `failed`                                | that fault                              |
| it takes more memory than it may                | `out_of_memory`; it is killed           |
| killed by somebody else, or memory is refused   | `out_of_memory`                         |
| it takes more time than it may                  | `timed_out`; it is killed               |
| anything else                                   | `converter_crashed`, with its last lines |

Whatever happens, `on_event` gets one last event, `done` or `failed`; only a cancellation is silent.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from serve.core.errors import ConversionFailed
from serve.model_files.reader import lacks_memory
from serve.processes import Child, Exit, Family, Program, spawn
from serve.workbench.conversion.events import (
    STAGES,
    OnEvent,
    event_of,
    failure_facts,
    failure_of,
    visible,
)
from serve.workbench.conversion.faults import FAULTS, failed
from serve.workbench.conversion.limits import ConversionLimits

_PAUSE = 0.05  # seconds between two looks at the memory
_LAST_LINES = 8
_LONGEST = 300  # characters of a line of talk that are told


async def follow(program: Program, *, limits: ConversionLimits, on_event: OnEvent) -> None:
    """Run it to its end; raises the fault. The child is gone when this returns, however it does."""
    heard = _Heard(on_event)
    try:
        last = await _live(program, limits, heard)
    except ConversionFailed as error:
        on_event({"type": "failed", **failure_facts(error)})
        raise
    on_event(last)


async def _live(program: Program, limits: ConversionLimits, heard: "_Heard") -> Mapping[str, Any]:
    try:
        child = spawn(replace(program, nice=limits.nice), on_line=heard)
    except OSError as error:
        why = f"{program.argv[0]} cannot be started: {error.strerror or error}"
        raise failed("converter_crashed", why) from error
    watch = _Watch(child, limits.memory)
    try:
        async with asyncio.timeout(limits.seconds), child, asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run())
            listening = tasks.create_task(heard.stop_when_deaf(child))
            ended = await child.wait()
            watching.cancel()
            listening.cancel()
    except TimeoutError:
        why = f"the limit of {limits.seconds:g} s was reached while {heard.doing}"
        raise failed("timed_out", why) from None
    if heard.trouble is not None:
        raise heard.trouble
    return _last(ended, heard, watch, limits)


def _last(
    ended: Exit, heard: "_Heard", watch: "_Watch", limits: ConversionLimits
) -> Mapping[str, Any]:
    """The event `done`, or the fault that ended it."""
    took = f"it used {_size(watch.peak)} while {heard.doing}"
    if watch.has_killed:
        raise failed("out_of_memory", f"{took}, the limit is {_size(limits.memory)}")
    if heard.end.get("type") == "failed" and heard.end.get("code") in FAULTS:
        raise failure_of(heard.end)
    if ended.code == 0 and heard.end.get("type") == "done":
        return heard.end
    said = " | ".join(heard.talk)
    if ended.code == -signal.SIGKILL:
        raise failed("out_of_memory", f"it was killed; {took}")
    if lacks_memory(said):
        raise failed("out_of_memory", f"the system refused more memory; {took}")
    end = "it ended without a result" if ended.code == 0 else str(ended)
    why = f"{end} while {heard.doing}" + (f": {said}" if said else "")
    raise failed("converter_crashed", why)


class _Heard:
    """What the child has said: its last event, the stage it is in, and the end of its talk.

    The last event is held back until the child has ended, because only then it is true. `trouble`
    is what went wrong on this side, where nobody could hear any more.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self.doing = "starting"
        self.end: Mapping[str, Any] = {}
        self.talk: deque[str] = deque(maxlen=_LAST_LINES)
        self.trouble: Exception | None = None
        self._deaf = asyncio.Event()
        self._on_event = on_event

    def __call__(self, line: str) -> None:
        event = event_of(line)
        if event is None:
            if line.strip():
                self.talk.append(visible(line[:_LONGEST]))
        elif event["type"] in ("done", "failed"):
            self.end = event
        else:
            if event["type"] == "stage":
                stage = event.get("stage", "")
                self.doing = STAGES.get(stage, stage)
            self._pass_on(event)

    async def stop_when_deaf(self, child: Child) -> None:
        """End the child once nobody hears it: a pipe that was closed, a disk that is full."""
        await self._deaf.wait()
        await child.stop(0)

    def _pass_on(self, event: Mapping[str, Any]) -> None:
        """The loop calls this from a reader of the pipe, where an error would be lost."""
        if self.trouble is None:
            try:
                self._on_event(event)
            except Exception as error:
                self.trouble = error
                self._deaf.set()


class _Watch:
    """Kills the child when it takes too much. `peak` in bytes, as it was seen."""

    def __init__(self, child: Child, limit: int) -> None:
        self.peak = 0
        self.has_killed = False
        self._child = child
        self._limit = limit
        self._family = Family(child.pid)

    def __repr__(self) -> str:
        return f"<_Watch {self._family!r} {_size(self.peak)} of {_size(self._limit)}>"

    async def run(self) -> None:
        """Look again and again, until it has ended."""
        while not self._child.is_gone:
            if await asyncio.to_thread(self._is_too_large):
                self.has_killed = True
                await self._child.stop(0)
            await asyncio.sleep(_PAUSE)

    def _is_too_large(self) -> bool:
        self.peak = max(self.peak, self._family.resident())
        return self.peak > self._limit and self._family.exceeds(self._limit)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
