"""Loads: the rates that they promise, the same calls for everybody, and times of logs."""

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.workbench.simulator.loads import LOADS, arrivals, repeated
from serve.workbench.simulator.traces import read_times

HOUR = 3600.0


def counted(times: np.ndarray, begin: float, end: float) -> int:
    return int(((times >= begin) & (times < end)).sum())


@pytest.mark.parametrize("name", LOADS)
def test_calls_come_in_order_at_the_mean_rate_and_always_the_same(name: str) -> None:
    times = arrivals(name, 50.0, HOUR, seed=7)
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0 and times[-1] < HOUR
    assert len(times) == pytest.approx(50.0 * HOUR, rel=0.05)
    assert (times == arrivals(name, 50.0, HOUR, seed=7)).all()
    assert len(times) != len(arrivals(name, 50.0, HOUR, seed=8))


def test_a_day_has_nine_times_as_many_at_its_peak_as_at_its_trough() -> None:
    times = arrivals("diurnal", 100.0, HOUR, seed=1)
    trough = counted(times, 0, 60) + counted(times, HOUR - 60, HOUR)
    assert counted(times, HOUR / 2 - 60, HOUR / 2 + 60) / trough == pytest.approx(9, rel=0.1)


def test_a_step_is_four_times_as_high() -> None:
    times = arrivals("step", 100.0, HOUR, seed=1)
    low = counted(times, 0, HOUR / 2)
    assert counted(times, HOUR / 2, HOUR) / low == pytest.approx(4, rel=0.05)


def test_a_spike_is_five_times_as_high_for_two_minutes() -> None:
    times = arrivals("spikes", 100.0, HOUR, seed=1)
    spike, before = counted(times, 600, 720), counted(times, 480, 600)
    assert spike / before == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize("variation", [1, 2, 4])
def test_gaps_vary_as_they_should(variation: int) -> None:
    gaps = np.diff(arrivals(f"gamma-{variation}", 200.0, HOUR, seed=3))
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05)


def test_a_trace_keeps_its_shape_at_another_rate() -> None:
    trace = np.concatenate([np.linspace(0, 100, 100), np.linspace(100, 200, 400)])
    for mean in (5.0, 50.0):
        times = repeated(trace, mean)
        assert len(times) == pytest.approx(mean * 200, rel=0.15)
        assert counted(times, 100, 201) / counted(times, 0, 100) == pytest.approx(4, rel=0.25)
    assert (repeated(trace, 5.0) == repeated(trace, 5.0)).all()


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (["1000.5", "1001", "1003.25"], [0.0, 0.5, 2.75]),  # from the first call on
        (["5", "3", "4"], [0.0, 1.0, 2.0]),
        (["2026-01-31T12:00:00Z", "2026-01-31T14:00:01.5+02:00"], [0.0, 1.5]),
        (  # a heading, another column and an empty line
            ["TIMESTAMP,tokens", "2023-11-16 18:15:46.68059,374", "", "2023-11-16 18:15:50.99,1"],
            [0.0, 4.30941],
        ),
    ],
)
def test_times_are_read_as_logs_write_them(lines: list[str], seconds: list[float]) -> None:
    assert read_times(lines, "f").tolist() == pytest.approx(seconds)


def test_what_is_no_time_is_said() -> None:
    for lines in (["1", "2", "soon"], ["1"], [], ["1", "nan"], ["t", "\0", "2"]):
        refusal(Invalid, read_times, lines, "f")
