"""Calls that wait, and what they hear."""

import dataclasses

import pytest
from builders import DataPlane, call, snapshot, target, view

from serve.core.calls import Call
from serve.core.errors import Asleep, ServegateError
from serve.core.routes import Split
from serve.core.snapshot import ModelView
from serve.proxy.attempts import Attempt

AWAITED = Split.of({1: 100})


def sleeping(name: str = "m", **more: object) -> ModelView:
    """A model of which version 1 is called, and whose pool has no replica."""
    return dataclasses.replace(view(name=name, asleep=True, **more), split=AWAITED)


ASLEEP = snapshot(sleeping(), sleeping("n"))
AWAKE = snapshot(view(target(1, "a")), sleeping("n"), generation=2)
BOTH_AWAKE = snapshot(view(target(1, "a")), view(target(1, "a", model="n"), name="n"), generation=2)


class Caller:
    """Whoever holds the bytes of one call; the attempt that it has at first is no real one."""

    def __init__(self, plane: DataPlane, asked: Call | None = None) -> None:
        self.attempt: Attempt | None = None
        self.error: ServegateError | None = None
        asked = asked or call()
        with pytest.raises(Asleep):
            plane.begin(asked)
        self.waiting = plane.gateway.wait(asked, self)

    def on_awake(self, attempt: Attempt) -> None:
        assert self.attempt is None and self.error is None
        self.attempt = attempt

    def on_asleep(self, error: ServegateError) -> None:
        assert self.attempt is None and self.error is None
        self.error = error

    def on_fault(self, error: Exception) -> None:
        raise error
