"""The progress of one job: what it has told, numbered, and waited for by whoever watches.

An event is a mapping with a `number`, a time `at` (seconds of the epoch) and a `type`: those of
`conversion/events.py`, and `state`, when the job has come to another one. The child process is not
trusted: of what it says only known fields are kept, and not much of each.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]
STATE, STAGE, SHARE = "state", "stage", "share"
MOST = 500  # events that are kept
_LONGEST = 2000  # characters of a text
_TEXTS = ("stage", "text", "code", "what", "why", "try_this", "operator", "node", "state")
_NUMBERS = ("done", "total", "version", "passed")


class ConversionProgress:
    """What one job tells, from its queue to its end. `wall` is seconds of the epoch."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._events: list[Event] = []
        self._last = 0
        self._news = asyncio.Event()
        self.stage = ""

    def __repr__(self) -> str:
        return f"<ConversionProgress {self._last} events, {self.stage or 'no stage'}>"

    @property
    def events(self) -> tuple[Event, ...]:
        """Those that are kept, the oldest first."""
        return tuple(self._events)

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Take one event; how far a stage is replaces how far it was."""
        event = _known(facts)
        if event["type"] == STAGE:
            self.stage = event.get("stage", "")
        if event["type"] == SHARE and self._events and self._events[-1]["type"] == SHARE:
            self._events.pop()
        self._last += 1
        self._events.append({"number": self._last, "at": self._wall(), **event})
        del self._events[:-MOST]
        self._news.set()
        self._news = asyncio.Event()

    def copy(self) -> "ConversionProgress":
        """Another one that has told the same."""
        other = ConversionProgress(self._wall)
        other._events, other._last, other.stage = list(self._events), self._last, self.stage
        return other

    def since(self, after: int) -> tuple[Event, ...]:
        """The events above a number; all of them where the number is of another time."""
        return since(self._events, after)

    async def news(self, after: int) -> tuple[Event, ...]:
        """Wait until there are events above a number."""
        while not (found := self.since(after)):
            await self._news.wait()
        return found


def since(events: Sequence[Event], after: int) -> tuple[Event, ...]:
    """The events above a number. Numbers begin anew with the process that leads."""
    newest = events[-1]["number"] if events else 0
    return tuple(events) if after > newest else tuple(e for e in events if e["number"] > after)


def plain(text: object) -> str:
    """A text of which there is not too much, and which can be written as UTF-8."""
    return str(text)[:_LONGEST].encode(errors="replace").decode()


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: plain(facts[name]) for name in _TEXTS if facts.get(name)}
    numbers = {name: facts[name] for name in _NUMBERS if _is_number(facts.get(name))}
    return {"type": plain(facts.get("type", ""))[:40], **texts, **numbers}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
