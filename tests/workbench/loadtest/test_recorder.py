"""From calls to windows."""

import pytest

from serve.workbench.loadtest.engine.recorder import WindowRecorder
from serve.workbench.loadtest.record import (
    NEVER_STARTED,
    RIGHT,
    TIMED_OUT,
    CallKey,
    Record,
    RecordWindow,
)

BEGINS = 1000.0


def recorder(seconds: float = 10) -> WindowRecorder:
    return WindowRecorder(BEGINS, seconds)


def call(
    to: WindowRecorder,
    intended: float,
    started: float,
    ended: float,
    *,
    lane: int = 0,
    outcome: str = RIGHT,
    decision: str = "",
    rows: int = 1,
) -> None:
    to.ended(lane, BEGINS + intended, BEGINS + started, BEGINS + ended, outcome, decision, rows)


def windows(of: WindowRecorder) -> dict[int, RecordWindow]:
    return dict(of.fold())


def test_a_call_belongs_to_the_second_of_its_intended_start() -> None:
    taken = recorder()
    call(taken, 2.9, 3.4, 5.9)
    found = windows(taken)
    cell = found[2].cells[CallKey(0, RIGHT, "")]
    assert cell.latency.largest == pytest.approx(3.0, rel=1e-3)
    assert cell.service.largest == pytest.approx(2.5, rel=1e-3)
    assert found[5].generator.ended == 1
    assert found[2].generator.ended == 0


def test_calls_are_told_apart_by_lane_outcome_and_decision() -> None:
    taken = recorder()
    call(taken, 0, 0, 0.1, rows=4)
    call(taken, 0, 0, 0.1, rows=4)
    call(taken, 0, 0, 0.1, lane=1, decision="2; by=split")
    call(taken, 0, 0, 0.1, outcome=TIMED_OUT)
    cells = windows(taken)[0].cells
    assert {key: (cell.calls, cell.rows) for key, cell in cells.items()} == {
        CallKey(0, RIGHT, ""): (2, 8),
        CallKey(1, RIGHT, "2; by=split"): (1, 1),
        CallKey(0, TIMED_OUT, ""): (1, 1),
    }


def test_what_was_meant_to_start_in_the_warm_up_is_not_recorded() -> None:
    taken = recorder()
    call(taken, -0.2, -0.2, 1.5)
    taken.lagged(BEGINS - 0.2, BEGINS)
    assert windows(taken) == {}


def test_an_even_start_at_a_second_belongs_to_it_although_sums_are_rounded() -> None:
    taken = WindowRecorder(0.1, 10)
    taken.ended(0, 0.1 + 0.7 + 0.2 + 0.1 - 1e-16, 2, 3, RIGHT, "", 1)
    assert windows(taken).keys() == {1, 2}


def test_a_call_that_never_started_has_a_latency_but_no_service() -> None:
    taken = recorder()
    call(taken, 8.0, 10, 10, outcome=NEVER_STARTED)
    found = windows(taken)
    cell = found[8].cells[CallKey(0, NEVER_STARTED, "")]
    assert cell.latency.largest == pytest.approx(2.0, rel=1e-3)
    assert cell.service.count == 0
    assert found.keys() == {8}


def test_parts_of_a_window_add_up_to_it() -> None:
    whole, parts = recorder(), recorder()
    record, in_parts = Record(), Record()
    for number in range(30):
        at = number / 10
        call(whole, at, at, at + 0.7)
        call(parts, at, at, at + 0.7)
        parts.gather()
        if number % 7 == 0:
            for second, window in parts.fold():
                in_parts.add(second, window)
    for second, window in parts.fold():
        in_parts.add(second, window)
    for second, window in whole.fold():
        record.add(second, window)
    assert in_parts.windows == record.windows


def test_how_the_generator_was_is_told_once_for_each_second_that_has_ended() -> None:
    taken = recorder()
    taken.looked(BEGINS, in_flight=9, waiting=9, cpu=5.0)
    taken.looked(BEGINS + 1, in_flight=3, waiting=2, cpu=5.25)
    taken.looked(BEGINS + 1.5, in_flight=8, waiting=8, cpu=5.5)
    taken.looked(BEGINS + 3, in_flight=4, waiting=1, cpu=6.75)
    found = {second: each.generator for second, each in windows(taken).items()}
    assert {second: (one.in_flight, one.waiting) for second, one in found.items()} == {
        0: (3, 2),
        1: (4, 1),
        2: (4, 1),
    }
    assert [one.cpu for one in found.values()] == pytest.approx([0.25, 0.75, 0.75])
    assert [one.busiest for one in found.values()] == pytest.approx([0.25, 0.75, 0.75])
