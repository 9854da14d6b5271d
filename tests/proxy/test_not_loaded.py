"""Calls of a version that the snapshot says is served, and that no replica has loaded (yet)."""

import pytest
from builders import DataPlane, call, snapshot, target, view
from refusals import refusal

from serve.core.calls import Call, Reply
from serve.core.errors import NotLoaded, ServegateError
from serve.proxy.attempts import Attempt

ON_ALL = snapshot(view(target(1, "a", "b", "c", "d")))
ABSENT = Reply(404, b'{"error":"Request for unknown model: \'m\' version 1 is not found"}')
LABELS = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}


def absent(plane: DataPlane, asked: Call | None = None) -> tuple[Attempt, NotLoaded]:
    """An attempt that has ended because none of its replicas has loaded the version."""
    attempt = plane.begin(asked)
    with pytest.raises(NotLoaded) as raised:
        while attempt.refused(ABSENT):
            pass
    return attempt, raised.value


class Waits:
    """A call that waits: what comes."""

    def __init__(self) -> None:
        self.attempt: Attempt | None = None
        self.error: ServegateError | None = None

    def on_awake(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def on_asleep(self, error: ServegateError) -> None:
        self.error = error


def test_a_call_that_no_replica_has_loaded_waits_and_begins_anew_with_each_look() -> None:
    plane, waits = DataPlane(ON_ALL), Waits()
    attempt, error = absent(plane)
    plane.gateway.wait_loaded(attempt, waits, error)
    assert plane.waking.count == 1 and plane.waking.wanted() == frozenset()
    assert plane.news == 0  # its pool is awake
    assert plane.count("servegate_errors_total", error="not_loaded", **LABELS) == 0
    plane.gateway.sweep()
    assert waits.attempt is not None and plane.waking.count == 0
    waits.attempt.answered(200, good=True)
    assert plane.count("servegate_calls_total", code="200", verb="infer", **LABELS) == 1


def test_a_call_waits_for_a_version_for_a_second_from_its_beginning_and_not_longer() -> None:
    plane, waits = DataPlane(ON_ALL), Waits()
    attempt, error = absent(plane)
    begun = attempt.begun
    for _ in range(3):
        plane.gateway.wait_loaded(attempt, waits, error)
        plane.clock.now += 0.3
        plane.gateway.sweep()
        assert waits.attempt is not None and waits.attempt.begun == begun
        attempt = waits.attempt
        with pytest.raises(NotLoaded) as raised:
            while attempt.refused(ABSENT):
                pass
        error = raised.value
    plane.gateway.wait_loaded(attempt, waits, error)
    plane.clock.now += 0.2
    plane.gateway.sweep()
    assert isinstance(waits.error, NotLoaded)
    assert plane.waking.count == 0
    assert plane.count("servegate_errors_total", error="not_loaded", **LABELS) == 1


def test_a_call_that_cannot_wait_for_a_version_is_refused_and_counted() -> None:
    for why in ("no place", "the worker stops", "no time"):
        plane = DataPlane(ON_ALL, waking_calls=0 if why == "no place" else 4)
        deadline = plane.clock.now + 0.5
        attempt, error = absent(plane, call(deadline=deadline))
        if why == "the worker stops":
            plane.waking.close()
        plane.clock.now += 0.5 if why == "no time" else 0.0
        refused = refusal(NotLoaded, plane.gateway.wait_loaded, attempt, Waits(), error)
        assert refused is error, why
        assert plane.count("servegate_errors_total", error="not_loaded", **LABELS) == 1, why


def test_a_call_of_a_sequence_does_not_wait_for_its_model() -> None:
    plane = DataPlane(snapshot(view(target(1, "a", "b"), sequences=True)))
    _, error = absent(plane, call(sequence="n1"))
    assert not error.until
