"""Users who wait for each answer before they call again."""

import itertools
import time
from collections.abc import Sequence

import pytest
from workbench.loadtest.driving_scene import (
    DelayedSender,
    LoopBench,
    drive,
    lane_of,
    record_of,
    sequence_lane,
)

from serve.workbench.loadtest.engine.driver import ClosedLoop, first_starts
from serve.workbench.loadtest.plan import Closed, Lane, LoadPlan
from serve.workbench.loadtest.record import RIGHT, CallKey


class Bench(LoopBench):
    """A closed loop over one lane."""

    def __init__(
        self,
        firsts: Sequence[float],
        *,
        think: float = 0.0,
        period: float = 0.0,
        most: int = 1000,
        lane: Lane | None = None,
    ) -> None:
        super().__init__(10.0, lane=lane, most=most, from_start=True)
        self.hastened: list[float] = []
        self.loop = ClosedLoop(
            [self.calls],
            firsts=firsts,
            choice=itertools.repeat(self.calls),
            think=think,
            period=period,
            hasten=self.hastened.append,
        )


def test_a_user_calls_again_at_once_without_think_or_pace() -> None:
    bench = Bench([0.0])
    bench.wake(0.0)
    bench.sender.end(at=0.2)
    bench.sender.end(at=0.3)
    assert bench.starts() == [0.0, 0.2, 0.3]


def test_a_user_thinks_after_an_answer() -> None:
    bench = Bench([0.0], think=2.0)
    bench.wake(0.0)
    bench.sender.end(at=1.0)
    assert bench.hastened == [3.0]
    assert bench.wake(2.9) == 3.0
    bench.wake(3.0)
    assert bench.starts() == [0.0, 3.0]


def test_a_paced_user_keeps_the_time_between_starts() -> None:
    bench = Bench([0.0], period=1.0)
    for second in range(3):
        bench.wake(float(second))
        bench.sender.end(at=second + 0.3)
    assert bench.starts() == [0.0, 1.0, 2.0]
    assert bench.hastened == [1.0, 2.0, 3.0]


def test_a_latency_is_from_the_real_start_and_there_is_no_lag() -> None:
    bench = Bench([0.0, 0.0], most=1)
    bench.wake(0.0)
    assert bench.calls.waiting == 1
    bench.sender.end(at=4.0)
    bench.sender.end(at=4.5)
    windows = record_of(bench.recorder).windows
    key = CallKey(0, RIGHT, "")
    assert windows[0].cells[key].latency.largest == pytest.approx(4.0, rel=1e-3)
    assert windows[4].cells[key].latency.largest == pytest.approx(0.5, rel=1e-3)
    assert all(not each.generator.lag.count for each in windows.values())


def test_nobody_calls_after_the_run_and_nobody_has_waited_in_vain() -> None:
    bench = Bench([0.0, 0.0, 0.0], most=2)
    bench.wake(0.0)
    bench.loop.stop(10.0)
    bench.sender.end(at=10.5)
    bench.sender.end(at=11.0)
    assert bench.starts() == [0.0, 0.0]
    assert {key.outcome for _, key, _ in record_of(bench.recorder).cells()} == {RIGHT}


def test_a_user_goes_through_a_whole_sequence_and_thinks_between_its_calls() -> None:
    bench = Bench([0.0], think=1.0, lane=sequence_lane(2))
    for second in (0, 2, 4):
        bench.wake(float(second))
        bench.sender.end(at=second + 1.0)
    kinds = [each.body.split()[0] for each in bench.sender.sent]
    assert kinds == [b"first", b"last", b"first"]
    ids = [each.body.split()[1] for each in bench.sender.sent]
    assert ids[0] == ids[1] != ids[2]


def test_a_sequence_of_one_call_is_its_first_and_its_last() -> None:
    bench = Bench([0.0], lane=sequence_lane(1))
    for second in range(3):
        bench.wake(float(second))
        bench.sender.end(at=second + 0.5)
    bodies = [each.body for each in bench.sender.sent]
    assert len(set(bodies)) == len(bodies) >= 3
    assert {body.split()[0] for body in bodies} == {b"only"}


def test_first_starts_spread_over_all_workers() -> None:
    parts = [first_starts(5, spread=1.0, worker=each, workers=2) for each in range(2)]
    assert parts == [(0.0, 0.4, 0.8), (0.2, pytest.approx(0.6))]
    assert max(first_starts(10_000, spread=0)) < 0.5
    assert first_starts(1, spread=3.0, worker=1, workers=2) == ()


def test_a_run_of_paced_users_makes_the_calls_of_its_rate() -> None:
    plan = LoadPlan((lane_of(),), 1.0, closed=Closed(users=4, rate=100), warm_up=0.2)
    sender = DelayedSender(time.monotonic, 0.001)
    record = drive(plan, sender)
    recorded = sum(cell.calls for _, _, cell in record.cells())
    assert 0 < recorded <= 104
    assert len(sender.sent) > recorded
