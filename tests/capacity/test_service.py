"""Service times, fitted to what Triton counted."""

import pytest

from serve.capacity.service import Decaying, ExecutionPoint, ServiceTime, at_one_size, fitted


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


def test_below_thirty_executions_nothing_is_said() -> None:
    assert fitted([ExecutionPoint(1, 0.005, 14), ExecutionPoint(2, 0.006, 15)]) is None


def test_one_size_is_no_line_but_a_time() -> None:
    assert fitted(points(4)) is None
    assert at_one_size(points(4)) == pytest.approx(0.008)
    assert at_one_size(points(4, 8)) is None


def test_a_line_that_would_begin_below_zero_goes_through_the_origin() -> None:
    service = line([ExecutionPoint(1, 0.001, 50), ExecutionPoint(8, 0.1, 50)])
    assert service.fixed == 0
    assert service.per_row > 0


def test_rows_that_cost_nothing_leave_a_fixed_time() -> None:
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


def test_what_is_very_old_is_gone() -> None:
    running = Decaying(half_life=300)
    running.add([ExecutionPoint(1, 0.010, 100)], at=0)
    assert running.points(at=300 * 20) == ()
