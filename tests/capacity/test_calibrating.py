"""What closed loops tell of a service."""

import pytest

from serve.capacity.asking import Calibration, Measured
from serve.capacity.calibrating import Told, calibrations, read
from serve.capacity.service import Point
from serve.capacity.setup import Setup

ONE, TWO = Setup(8, 1), Setup(8, 2)


def told(
    setup: Setup, callers: int, *points: Point, seconds: float = 10.0, p50: float = 0.1
) -> Told:
    return Calibration(setup, callers), Measured(seconds, 0.0, p50, p50, p50, points=points)


ALONE = told(ONE, 1, Point(1, 0.005, 1000), p50=0.006)
FULL = told(ONE, 16, Point(8, 0.012, 800))


def test_the_largest_batch_is_loaded_once_and_once_for_each_number_of_instances() -> None:
    grid = [Setup(2, 1), Setup(8, 1), Setup(8, 1, delay=0.1), Setup(4, 2), Setup(8, 3)]

    found = calibrations(grid, rows=1)

    assert [(each.setup, each.callers) for each in found] == [
        (ONE, 1),
        (ONE, 4),
        (ONE, 16),
        (TWO, 32),
        (Setup(8, 3), 48),
    ]


def test_calls_of_many_rows_need_few_callers() -> None:
    found = calibrations([ONE], rows=4)

    assert [each.callers for each in found] == [1, 2, 4]


def test_the_line_the_overhead_and_the_pause_are_told_apart() -> None:
    """A full batch every 12.5 ms of which 12 are executed; a lone call takes 1 ms besides."""
    found = read([ALONE, FULL], rows=1)

    assert found is not None
    service, overhead = found
    assert service.fixed == pytest.approx(0.004 + 0.0005)
    assert service.per_row == pytest.approx(0.001)
    assert overhead == pytest.approx(0.001 - 0.0005)


def test_a_pause_of_an_instance_that_waits_for_calls_is_not_counted() -> None:
    ask, idle = FULL
    idle = Measured(100.0, 0.0, 0.1, 0.1, 0.1, points=idle.points, queue=0.0001)

    found = read([ALONE, (ask, idle)], rows=1)

    assert found is not None
    assert found[0].fixed == pytest.approx(0.004)


def test_instances_that_share_a_processor_are_seen_to_slow_each_other() -> None:
    both = told(TWO, 32, Point(8, 0.020, 1000))

    found = read([ALONE, FULL, both], rows=1)

    assert found is not None
    assert found[0].slowed(2) == pytest.approx(0.020 / 0.0125)


def test_one_size_is_enough_for_a_model_that_takes_no_batches() -> None:
    found = read([ALONE], rows=1)

    assert found is not None
    assert found[0].time(1) == pytest.approx(0.005)


def test_too_few_executions_tell_nothing() -> None:
    assert read([told(ONE, 1, Point(1, 0.005, 20))], rows=1) is None


def test_a_tail_of_a_lone_caller_is_taken_for_scatter() -> None:
    ask, _ = ALONE
    ragged = Measured(10.0, 0.0, 0.009, 0.006, 0.009, points=(Point(1, 0.005, 1000),))

    found = read([(ask, ragged)], rows=1)

    assert found is not None
    assert found[0].scatter == pytest.approx(0.176, abs=0.01)
