"""Ends calls that are over their time, for all the senders that locust's users have."""

import time
import weakref
from typing import Any

import gevent

from serve.load.engine.senders import Sender

_PAUSE = 0.05  # seconds between two looks


class Sweeping:
    """One greenlet for all of them. Their clock is `time.perf_counter`, as locust's is."""

    def __init__(self) -> None:
        self._senders: weakref.WeakSet[Sender] = weakref.WeakSet()
        self._greenlet: Any = None

    def __repr__(self) -> str:
        return f"<Sweeping {len(self._senders)} senders>"

    def add(self, sender: Sender) -> None:
        """One more, until nobody holds it."""
        self._senders.add(sender)
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._sweep)

    def _sweep(self) -> None:
        while True:
            gevent.sleep(_PAUSE)
            for each in tuple(self._senders):
                each.sweep(time.perf_counter())


SWEEPING = Sweeping()
