"""What closed loops tell of a service."""

from dataclasses import replace

import pytest

from serve.capacity.calibration import History, Told, calibrations, coming, read
from serve.capacity.measurements import Ask, Calibration, Measured, Pressure
from serve.capacity.service import ExecutionPoint, ServiceTime
from serve.capacity.setup import BatchSetup

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
    grid = [
        BatchSetup(2, 1),
        BatchSetup(8, 1),
        BatchSetup(8, 1, delay=0.1),
        BatchSetup(4, 2),
        BatchSetup(8, 3),
    ]
    found = calibrations(grid, rows=1)
    assert [(each.setup, each.callers) for each in found] == [
        (ONE, 1),
        (ONE, 4),
        (ONE, 16),
        (TWO, 32),
        (BatchSetup(8, 3), 48),
    ]


def test_calls_of_many_rows_need_few_callers() -> None:
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


def test_instances_that_wait_for_calls_tell_by_their_executions_how_they_slow_each_other() -> None:
    ask, both = told(TWO, 32, ExecutionPoint(8, 0.015, 100))
    idle = replace(both, queue=0.0001)
    service, _ = told_by(ALONE, FULL, (ask, idle))
    assert service.slowed(2) == pytest.approx(0.015 / 0.012)


def test_instances_that_share_a_processor_are_seen_to_slow_each_other() -> None:
    both = told(TWO, 32, ExecutionPoint(8, 0.020, 1000))
    service, _ = told_by(ALONE, FULL, both)
    assert service.slowed(2) == pytest.approx(0.020 / 0.0125)


def test_what_executions_take_under_pressure_counts_where_it_is_more() -> None:
    """16 ms instead of 12.5 for a full batch, and two instances slow each other down by half."""
    pressure = (
        Pressure(ONE, 100.0),
        told(ONE, 16, ExecutionPoint(8, 0.014, 800), seconds=0.016 * 800)[1],
    )
    both = told(TWO, 32, ExecutionPoint(8, 0.016, 1000), seconds=0.008 * 1000)
    pressed = (
        Pressure(TWO, 200.0),
        told(TWO, 32, ExecutionPoint(8, 0.02, 1000), seconds=0.012 * 1000)[1],
    )
    service, _ = told_by(ALONE, FULL, pressure, both, pressed)
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


@pytest.mark.parametrize(
    "told_of_it",
    [
        "it did not load",
        Measured(10.0, 0.0, 0.1, 0.1, 0.1),
        Measured(10.0, 600.0, 0.1, 0.1, 0.1, points=(ExecutionPoint(8, 0.012, 800),), queue=0.0001),
    ],
    ids=["fails", "executes nothing", "waits for calls"],
)
def test_a_setup_that_could_not_be_kept_busy_is_not_pressed(told_of_it: Measured | str) -> None:
    planned = calibrations([ONE], rows=1)
    history: History = [*((ask, FULL[1]) for ask in planned[:-1]), (planned[-1], told_of_it)]
    assert coming(planned, history) is None


def test_one_size_is_enough_for_a_model_that_takes_no_batches() -> None:
    service, _ = told_by(ALONE)
    assert service.time(1) == pytest.approx(0.005)


def test_too_few_executions_tell_nothing() -> None:
    assert read([told(ONE, 1, ExecutionPoint(1, 0.005, 20))], rows=1) is None


def test_a_tail_of_a_lone_caller_is_taken_for_scatter() -> None:
    ask, _ = ALONE
    ragged = Measured(10.0, 0.0, 0.009, 0.006, 0.009, points=(ExecutionPoint(1, 0.005, 1000),))
    service, _ = told_by((ask, ragged))
    assert service.scatter == pytest.approx(0.176, abs=0.01)
