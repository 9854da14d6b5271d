"""From calls to windows."""

from typing import Any

import pytest

from serve.workbench.loadtest.engine.recorder import WindowRecorder
from serve.workbench.loadtest.record import (
    NEVER_STARTED,
    RIGHT,
    TIMED_OUT,
    CallKey,
    GeneratorLoad,
    Record,
    RecordWindow,
)


class Recorder(WindowRecorder):
    """One of a run of ten seconds, whose windows can be read."""

    def __init__(self, begin: float = 0.0) -> None:
        super().__init__(begin, 10)

    def call(self, *times: float, lane: int = 0, outcome: str = RIGHT, **told: Any) -> None:
        """A call with its intended start, its real one, and its end."""
        self.ended(lane, *times, outcome, told.get("decision", ""), told.get("rows", 1))

    def windows(self) -> dict[int, RecordWindow]:
        return dict(self.fold())


def test_a_call_belongs_to_the_second_of_its_intended_start() -> None:
    taken = Recorder(1000.0)
    taken.call(1002.9, 1003.4, 1005.9)
    found = taken.windows()
    cell = found[2].cells[CallKey(0, RIGHT, "")]
    assert cell.latency.largest == pytest.approx(3.0, rel=1e-3)
    assert cell.service.largest == pytest.approx(2.5, rel=1e-3)
    assert found[5].generator.ended == 1
    assert found[2].generator.ended == 0


def test_calls_are_told_apart_by_lane_outcome_and_decision() -> None:
    taken = Recorder()
    taken.call(0, 0, 0.1, rows=4)
    taken.call(0, 0, 0.1, rows=4)
    taken.call(0, 0, 0.1, lane=1, decision="2; by=split")
    taken.call(0, 0, 0.1, outcome=TIMED_OUT)
    cells = taken.windows()[0].cells
    assert {key: (cell.calls, cell.rows) for key, cell in cells.items()} == {
        CallKey(0, RIGHT, ""): (2, 8),
        CallKey(1, RIGHT, "2; by=split"): (1, 1),
        CallKey(0, TIMED_OUT, ""): (1, 1),
    }


def test_what_was_meant_to_start_in_the_warm_up_is_not_recorded() -> None:
    taken = Recorder()
    taken.call(-0.2, -0.2, 1.5)
    taken.lagged(-0.2, 0.0)
    assert taken.windows() == {}


def test_an_even_start_at_a_second_belongs_to_it_although_sums_are_rounded() -> None:
    taken = Recorder(0.1)
    taken.call(0.1 + 0.7 + 0.2 + 0.1 - 1e-16, 2, 3)
    assert taken.windows().keys() == {1, 2}


def test_a_call_that_never_started_has_a_latency_but_no_service() -> None:
    taken = Recorder()
    taken.call(8.0, 10, 10, outcome=NEVER_STARTED)
    found = taken.windows()
    cell = found[8].cells[CallKey(0, NEVER_STARTED, "")]
    assert cell.latency.largest == pytest.approx(2.0, rel=1e-3)
    assert cell.service.count == 0
    assert found.keys() == {8}


def test_parts_of_a_window_add_up_to_it() -> None:
    whole, parts, in_parts = Recorder(), Recorder(), Record()
    for number in range(30):
        at = number / 10
        whole.call(at, at, at + 0.7)
        parts.call(at, at, at + 0.7)
        parts.gather()
        if number % 7 == 0 or number == 29:
            for second, window in parts.fold():
                in_parts.add(second, window)
    assert in_parts.windows == whole.windows()


def test_how_the_generator_was_is_told_once_for_each_second_that_has_ended() -> None:
    taken = Recorder()
    taken.looked(0.0, in_flight=9, waiting=9, cpu=5.0)
    taken.looked(1.0, in_flight=3, waiting=2, cpu=5.25)
    taken.looked(1.5, in_flight=8, waiting=8, cpu=5.5)
    taken.looked(3.0, in_flight=4, waiting=1, cpu=6.75)
    found = {second: each.generator for second, each in taken.windows().items()}
    calm = GeneratorLoad(in_flight=3, waiting=2, cpu=0.25, busiest=0.25)
    busy = GeneratorLoad(in_flight=4, waiting=1, cpu=0.75, busiest=0.75)
    assert found == {0: calm, 1: busy, 2: busy}
