"""How a process of a load test speaks to the one that started it: events, one JSON object a line.

    {"type": "begun"}                       second 0 begins
    {"type": "window", "second": 12, …}     what is known of a second, see `recording.Window`
    {"type": "problem", "text": …}          something that the result must tell
    {"type": "ended"}                       the run and its drain are over
    {"type": "failed", "code": …, …}        there is no result; the words of an error

Nothing here blocks the loop in which the calls are made: a greenlet writes what has been told.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import gevent
from gevent.os import make_nonblocking, nb_write
from gevent.queue import Queue

Event = Mapping[str, Any]
Tell = Callable[[Event], None]


class EventWriter:
    """Writes events to a descriptor that nobody else writes to; it is a `Tell`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: Any = Queue()
        make_nonblocking(descriptor)
        self._writing = gevent.spawn(self._write)

    def __repr__(self) -> str:
        return f"<EventWriter {self._lines.qsize()} waiting>"

    def __call__(self, event: Event) -> None:
        self._lines.put(json.dumps(event, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Wait until all of it is written, or nobody reads any more."""
        self._lines.put(b"")
        self._writing.join()

    def _write(self) -> None:
        while line := self._lines.get():
            rest = memoryview(line)
            while rest:
                try:
                    rest = rest[nb_write(self._descriptor, rest) :]
                except OSError:  # the other side has gone, and this process goes with it
                    return


def take_stdout() -> int:
    """A descriptor for what stdout leads to; whatever prints from now on goes to stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def event_of(error: Any) -> dict[str, Any]:
    """The event that tells an error of ours."""
    words = {"what": error.what, "why": error.why, "try_this": error.try_this}
    return {"type": "failed", "code": error.code, **words}
