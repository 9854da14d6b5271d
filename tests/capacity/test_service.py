"""Service times: fitted to what Triton counted, and read from closed loops."""

from dataclasses import replace

import pytest

from serve.capacity.calibration import History, Told, calibrations, coming, read
from serve.capacity.measurements import Ask, Calibration, Measured, Pressure
from serve.capacity.service import Decaying, ExecutionPoint, ServiceTime, at_one_size, fitted
from serve.capacity.setup import BatchSetup


def points(*sizes: int, fixed: float = 0.004, per_row: float = 0.001) -> list[ExecutionPoint]:
    return [ExecutionPoint(size, fixed + per_row * size, 100) for size in sizes]


def line(given: list[ExecutionPoint]) -> ServiceTime:
    found = fitted(given)
    assert found is not None
    return found


def test_a_line_is_found_again() -> None:
    service = line(points(1, 2, 8))
    assert (service.fixed, service.per_row) == pytest.approx((0.004, 0.001))
    assert service.scatter == pytest.approx(0, abs=1e-9)


def test_a_size_counts_by_its_executions() -> None:
    odd = ExecutionPoint(4, 0.1, 1)
    service = line([*points(1, 8), odd])
    assert service.time(8) == pytest.approx(0.012, rel=0.1)


def test_below_thirty_executions_nothing_is_said_and_one_size_is_no_line_but_a_time() -> None:
    assert fitted([ExecutionPoint(1, 0.005, 14), ExecutionPoint(2, 0.006, 15)]) is None
    assert read([told(ONE, 1, ExecutionPoint(1, 0.005, 20))], rows=1) is None
    assert fitted(points(4)) is None
    assert at_one_size(points(4)) == pytest.approx(0.008)
    assert at_one_size(points(4, 8)) is None


def test_a_line_begins_at_no_less_than_zero_and_does_not_fall() -> None:
    service = line([ExecutionPoint(1, 0.001, 50), ExecutionPoint(8, 0.1, 50)])
    assert (service.fixed, service.per_row > 0) == (0, True)
    service = line([ExecutionPoint(1, 0.005, 50), ExecutionPoint(8, 0.004, 50)])
    assert service.per_row > 0
    assert service.time(8) == pytest.approx(0.0044, rel=0.01)


def test_the_slowdown_goes_on_in_a_line_between_and_beyond_what_is_told() -> None:
    service = ServiceTime(0.01, 0.001, slowdown={2: 1.4, 4: 2.4})
    assert [service.slowed(busy) for busy in (1, 2, 3, 4, 5)] == pytest.approx(
        [1.0, 1.4, 1.9, 2.4, 2.9]
    )
    assert service.time(1, busy=2) == pytest.approx(0.0154)


def test_what_was_counted_long_ago_weighs_less() -> None:
    running = Decaying(half_life=300)
    running.add([ExecutionPoint(1, 0.010, 100)], at=0)
    running.add([ExecutionPoint(1, 0.020, 100), ExecutionPoint(4, 0.030, 10)], at=300)
    one, four = running.points(at=300)
    assert one.executions == pytest.approx(150)
    assert one.seconds == pytest.approx((0.010 * 50 + 0.020 * 100) / 150)
    assert (four.rows, four.seconds, four.executions) == pytest.approx((4, 0.030, 10))
    assert running.points(at=300 * 21) == ()


# --- what closed loops tell ----------------------------------------------------------------------

ONE, TWO = BatchSetup(8, 1), BatchSetup(8, 2)


def told(
    setup: BatchSetup,
    callers: int,
    *points: ExecutionPoint,
    seconds: float = 10.0,
    p50: float = 0.1,
) -> Told:
    return Calibration(setup, callers), Measured(seconds, 0.0, p50, p50, p50, points=points)


def told_by(*measured: Told) -> tuple[ServiceTime, float]:
    """The service and the overhead that these measurements tell of."""
    found = read([*measured], rows=1)
    assert found is not None
    return found


ALONE = told(ONE, 1, ExecutionPoint(1, 0.005, 1000), p50=0.006)
FULL = told(ONE, 16, ExecutionPoint(8, 0.012, 800))


def test_the_largest_batch_is_loaded_once_and_once_for_each_number_of_instances() -> None:
    three = BatchSetup(8, 3)
    grid = [BatchSetup(2, 1), ONE, BatchSetup(8, 1, delay=0.1), BatchSetup(4, 2), three]
    found = [(each.setup, each.callers) for each in calibrations(grid, rows=1)]
    assert found == [(ONE, 1), (ONE, 4), (ONE, 16), (TWO, 32), (three, 48)]
    # calls of many rows need few callers
    assert [each.callers for each in calibrations([ONE], rows=4)] == [1, 2, 4]


def test_the_line_the_overhead_and_the_pause_are_told_apart() -> None:
    """A full batch every 12.5 ms of which 12 are executed; a lone call takes 1 ms besides."""
    service, overhead = told_by(ALONE, FULL)
    assert service.fixed == pytest.approx(0.004 + 0.0005)
    assert service.per_row == pytest.approx(0.001)
    assert overhead == pytest.approx(0.001 - 0.0005)


def test_a_pause_of_an_instance_that_waits_for_calls_is_not_counted() -> None:
    ask, idle = FULL
    idle = Measured(100.0, 0.0, 0.1, 0.1, 0.1, points=idle.points, queue=0.0001)
    service, _ = told_by(ALONE, (ask, idle))
    assert service.fixed == pytest.approx(0.004)


def test_who_hands_answers_out_pauses_longer_after_a_larger_batch() -> None:
    """0.1 ms for each answer, and a lone call takes 0.4 ms besides its execution."""
    half = told(ONE, 4, ExecutionPoint(4, 0.008, 1000), seconds=0.0084 * 1000)
    full = told(ONE, 16, ExecutionPoint(8, 0.012, 1000), seconds=0.0128 * 1000)
    alone = told(ONE, 1, ExecutionPoint(1, 0.005, 1000), p50=0.0054)
    service, overhead = told_by(alone, half, full)
    assert service.fixed == pytest.approx(0.004, abs=1e-5)
    assert service.per_row == pytest.approx(0.0011)
    assert overhead == pytest.approx(0.0003)


def test_a_pause_that_is_longer_than_what_a_lone_call_takes_comes_from_the_rows() -> None:
    slow = told(ONE, 16, ExecutionPoint(8, 0.012, 800), seconds=0.016 * 800)
    service, overhead = told_by(ALONE, slow)
    assert service.time(8) == pytest.approx(0.016)
    assert service.time(1) + overhead == pytest.approx(0.006)


def test_instances_that_share_a_processor_are_seen_to_slow_each_other() -> None:
    both = told(TWO, 32, ExecutionPoint(8, 0.020, 1000))
    service, _ = told_by(ALONE, FULL, both)
    assert service.slowed(2) == pytest.approx(0.020 / 0.0125)
    # those that wait for calls tell it by their executions
    ask, both = told(TWO, 32, ExecutionPoint(8, 0.015, 100))
    service, _ = told_by(ALONE, FULL, (ask, replace(both, queue=0.0001)))
    assert service.slowed(2) == pytest.approx(0.015 / 0.012)


def test_what_executions_take_under_pressure_counts_where_it_is_more() -> None:
    """16 ms instead of 12.5 for a full batch, and two instances slow each other down by half."""
    _, one = told(ONE, 16, ExecutionPoint(8, 0.014, 800), seconds=0.016 * 800)
    both = told(TWO, 32, ExecutionPoint(8, 0.016, 1000), seconds=0.008 * 1000)
    _, two = told(TWO, 32, ExecutionPoint(8, 0.02, 1000), seconds=0.012 * 1000)
    pressed = (Pressure(ONE, 100.0), one), both, (Pressure(TWO, 200.0), two)
    service, _ = told_by(ALONE, FULL, *pressed)
    assert service.time(8) == pytest.approx(0.016)
    assert service.slowed(2) == pytest.approx(1.5)


def test_a_setup_that_is_kept_busy_is_pressed_before_the_next_is_loaded() -> None:
    planned, history = calibrations([ONE, TWO], rows=1), list[tuple[Ask, Measured | str]]()
    while (ask := coming(planned, history)) is not None:
        measured = Measured(10.0, 600.0, 0.1, 0.1, 0.1, points=(ExecutionPoint(8, 0.012, 800),))
        history.append((ask, replace(measured, queue=0.01)))
    asked = [ask for ask, _ in history]
    assert asked[:3] == list(planned[:3])
    assert asked[3:] == [Pressure(ONE, 720.0), planned[3], Pressure(TWO, 720.0)]


def test_a_setup_that_could_not_be_kept_busy_is_not_pressed() -> None:
    planned = calibrations([ONE], rows=1)
    waits = Measured(10.0, 600.0, 0.1, 0.1, 0.1, points=FULL[1].points, queue=0.0001)
    for found in ("it did not load", Measured(10.0, 0.0, 0.1, 0.1, 0.1), waits):
        history: History = [*((ask, FULL[1]) for ask in planned[:-1]), (planned[-1], found)]
        assert coming(planned, history) is None


def test_a_tail_of_a_lone_caller_is_taken_for_scatter() -> None:
    ask, _ = ALONE
    ragged = Measured(10.0, 0.0, 0.009, 0.006, 0.009, points=(ExecutionPoint(1, 0.005, 1000),))
    service, _ = told_by((ask, ragged))
    assert service.time(1) == pytest.approx(0.005)
    assert service.scatter == pytest.approx(0.176, abs=0.01)
