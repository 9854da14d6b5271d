"""Calls that start when they are meant to, and users who wait for each answer before they call."""

import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from workbench.loadtest.driving_scene import (
    Clock,
    DelayedSender,
    LoopBench,
    ScriptedSender,
    calls_of,
    drive,
    lane_of,
    record_of,
    sequence_lane,
)

from serve.workbench.loadtest.arrivals import intended
from serve.workbench.loadtest.engine.driver import ClosedLoop, OpenLoop, first_starts
from serve.workbench.loadtest.engine.lane_calls import choices
from serve.workbench.loadtest.engine.recorder import WindowRecorder
from serve.workbench.loadtest.plan import Arrivals, Closed, Lane, LoadPlan, Payload, Spacing
from serve.workbench.loadtest.record import NEVER_STARTED, NOT_CONNECTED, RIGHT, CallKey, Record

END = 10.0


class OpenBench(LoopBench):
    """An open loop over one lane."""

    def __init__(
        self, starts: Sequence[float], *, lane: Lane | None = None, most: int = 1000
    ) -> None:
        super().__init__(END, lane=lane, most=most, from_start=False)
        self.loop = OpenLoop([self.calls], starts=iter(starts), choice=itertools.repeat(self.calls))

    def record(self) -> Record:
        return record_of(self.recorder)

    def latencies(self, outcome: str = RIGHT) -> list[float]:
        """Of all calls with the outcome, a value per second in which they were meant to start."""
        key = CallKey(0, outcome, "")
        windows = self.record().windows.values()
        return [each.cells[key].latency.largest for each in windows if key in each.cells]


def test_what_is_due_starts_at_once_and_the_next_is_told() -> None:
    bench = OpenBench([1.0, 1.5, 3.0])
    assert bench.wake(0.5) == 1.0
    assert bench.starts() == []
    assert bench.wake(1.6) == 3.0
    assert bench.starts() == [1.6, 1.6]
    assert bench.wake(3.0) == math.inf
    assert bench.calls.in_flight == 3


def test_a_latency_is_from_the_intended_start() -> None:
    bench = OpenBench([1.0])
    bench.wake(1.25)
    bench.sender.end(at=2.0)
    cell = bench.record().windows[1].cells[CallKey(0, RIGHT, "")]
    assert cell.latency.largest == pytest.approx(1.0, rel=1e-3)
    assert cell.service.largest == pytest.approx(0.75, rel=1e-3)


def test_an_arrival_without_a_connection_waits_for_the_end_of_a_call() -> None:
    bench = OpenBench([1.0, 2.0, 3.0], most=1)
    bench.wake(3.0)
    assert (bench.calls.in_flight, bench.calls.waiting) == (1, 2)
    bench.sender.end(at=4.0)
    bench.sender.end(at=5.0)
    bench.sender.end(at=6.0)
    assert bench.starts() == [3.0, 4.0, 5.0]
    windows = bench.record().windows
    assert bench.calls.waiting == 0
    assert [windows[at].generator.lag.largest for at in (1, 2, 3)] == pytest.approx([2, 2, 2], 0.01)


def test_arrivals_start_in_order_even_if_a_connection_is_free_again() -> None:
    lane = lane_of(*map(Payload, (b"a", b"b", b"c", b"d")))
    bench = OpenBench([1.0, 2.0, 3.0, 3.0], lane=lane, most=1)
    bench.wake(2.0)
    bench.sender.in_flight.clear()  # free, and nobody was told
    bench.wake(3.0)
    bench.calls.start_waiting()
    assert [each.body for each in bench.sender.sent] == [b"a", b"b"]
    assert bench.calls.waiting == 2
    bench.sender.end(at=4.0)
    assert bench.sender.sent[-1].body == b"c"


def test_what_waits_when_the_run_is_over_has_never_started() -> None:
    bench = OpenBench([1.0, 2.0, 4.0, 9.0], most=2)
    bench.wake(2.0)
    bench.loop.stop(END)
    assert bench.latencies(NEVER_STARTED) == pytest.approx([6.0, 1.0], rel=1e-3)
    bench.sender.end(at=11.0)
    bench.sender.end(at=12.0)
    assert len(bench.sender.sent) == 2


def test_a_failed_call_is_recorded_and_makes_room() -> None:
    bench = OpenBench([1.0, 2.0], most=1)
    bench.wake(2.0)
    bench.sender.end(at=2.5, outcome=NOT_CONNECTED)
    assert bench.starts() == [2.0, 2.5]
    assert bench.latencies(NOT_CONNECTED) == pytest.approx([1.5], rel=1e-3)


def test_a_sequence_goes_on_when_a_call_of_it_has_ended() -> None:
    bench = OpenBench([1.0], lane=sequence_lane(3))
    bench.wake(1.0)
    bench.sender.end(at=2.0)
    bench.sender.end(at=4.0, outcome=NOT_CONNECTED)
    bench.sender.end(at=7.0)
    assert [each.body.split()[0] for each in bench.sender.sent] == [b"first", b"go", b"last"]
    assert len({each.body.split()[1] for each in bench.sender.sent}) == 1
    assert bench.latencies() == pytest.approx([1.0, 3.0], rel=1e-3)
    assert bench.latencies(NOT_CONNECTED) == []  # folded already
    assert bench.calls.in_flight == 0


def test_a_sequence_does_not_go_on_after_the_run() -> None:
    bench = OpenBench([1.0], lane=sequence_lane(3))
    bench.wake(1.0)
    bench.loop.stop(END)
    bench.sender.end(at=11.0)
    assert len(bench.sender.sent) == 1
    assert bench.latencies(NEVER_STARTED) == []


def test_lanes_are_chosen_by_weight_and_seed() -> None:
    sender, recorder = ScriptedSender(Clock()), WindowRecorder(0.0, END)
    lanes = [
        calls_of(lane_of(weight=weight), sender, recorder, number=number)
        for number, weight in enumerate((9.0, 1.0, 0.0))
    ]
    chosen = list(itertools.islice(choices(lanes, seed="1"), 10_000))
    shares = Counter(lanes.index(each) for each in chosen)
    assert shares[0] == pytest.approx(9000, abs=150)
    assert shares[2] == 0
    assert chosen == list(itertools.islice(choices(lanes, seed="1"), 10_000))


def counts(record: Record, outcome: str = RIGHT) -> Counter[int]:
    found: Counter[int] = Counter()
    for second, key, cell in record.cells():
        found[second] += cell.calls if key.outcome == outcome else 0
    return found


def test_a_run_makes_the_intended_calls_and_waits_for_their_ends() -> None:
    plan = LoadPlan((lane_of(),), 1.2, Arrivals(200), seed=4)
    sender = DelayedSender(time.monotonic, 0.3)
    record = drive(plan, sender)
    meant = intended(Arrivals(200), 1.2, seed=4)
    assert [counts(record)[second] for second in (0, 1)] == list(meant)
    assert sum(each.generator.ended for each in record.windows.values()) == sum(meant)
    assert sum(each.generator.lag.count for each in record.windows.values()) == sum(meant)
    assert record.windows[0].generator.in_flight > 0
    assert sender.sweeps


def test_warm_up_calls_are_made_and_not_recorded() -> None:
    plan = LoadPlan((lane_of(),), 0.5, Arrivals(100, spacing=Spacing.EVEN), warm_up=0.5)
    sender = DelayedSender(time.monotonic, 0.01)
    record = drive(plan, sender)
    assert sum(counts(record).values()) == 50
    assert len(sender.sent) > 60


def test_sequences_of_two_workers_have_different_ids() -> None:
    lane = sequence_lane(2)
    plan = LoadPlan((lane,), 0.2, Arrivals(100), seed=2)
    senders = [DelayedSender(time.monotonic, 0.001) for _ in range(2)]
    for number, sender in enumerate(senders):
        drive(plan, sender, worker=number, workers=2)
    first, second = ({body.split()[1] for body in each.sent} for each in senders)
    assert first
    assert second
    assert not first & second


def test_a_run_ends_although_a_sender_forgets_a_call() -> None:
    plan = LoadPlan((lane_of(),), 0.05, Arrivals(100, spacing=Spacing.EVEN), timeout=0)
    sender = ScriptedSender(Clock())
    drive(plan, sender)
    assert len(sender.in_flight) == 5


# --- users ----------------------------------------------------------------------------------------


class ClosedBench(LoopBench):
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
    bench = ClosedBench([0.0])
    bench.wake(0.0)
    bench.sender.end(at=0.2)
    bench.sender.end(at=0.3)
    assert bench.starts() == [0.0, 0.2, 0.3]


def test_a_user_thinks_after_an_answer() -> None:
    bench = ClosedBench([0.0], think=2.0)
    bench.wake(0.0)
    bench.sender.end(at=1.0)
    assert bench.hastened == [3.0]
    assert bench.wake(2.9) == 3.0
    bench.wake(3.0)
    assert bench.starts() == [0.0, 3.0]


def test_a_paced_user_keeps_the_time_between_starts() -> None:
    bench = ClosedBench([0.0], period=1.0)
    for second in range(3):
        bench.wake(float(second))
        bench.sender.end(at=second + 0.3)
    assert bench.starts() == [0.0, 1.0, 2.0]
    assert bench.hastened == [1.0, 2.0, 3.0]


def test_a_latency_is_from_the_real_start_and_there_is_no_lag() -> None:
    bench = ClosedBench([0.0, 0.0], most=1)
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
    bench = ClosedBench([0.0, 0.0, 0.0], most=2)
    bench.wake(0.0)
    bench.loop.stop(10.0)
    bench.sender.end(at=10.5)
    bench.sender.end(at=11.0)
    assert bench.starts() == [0.0, 0.0]
    assert {key.outcome for _, key, _ in record_of(bench.recorder).cells()} == {RIGHT}


def test_a_user_goes_through_a_whole_sequence_and_thinks_between_its_calls() -> None:
    bench = ClosedBench([0.0], think=1.0, lane=sequence_lane(2))
    for second in (0, 2, 4):
        bench.wake(float(second))
        bench.sender.end(at=second + 1.0)
    kinds = [each.body.split()[0] for each in bench.sender.sent]
    assert kinds == [b"first", b"last", b"first"]
    ids = [each.body.split()[1] for each in bench.sender.sent]
    assert ids[0] == ids[1] != ids[2]


def test_a_sequence_of_one_call_is_its_first_and_its_last() -> None:
    bench = ClosedBench([0.0], lane=sequence_lane(1))
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
