"""Traces: times as logs write them."""

import pytest

from serve.core.errors import Invalid
from serve.workbench.simulator.traces import read_times


def test_seconds_are_counted_from_the_first_call() -> None:
    assert read_times(["1000.5", "1001", "1003.25"], "f").tolist() == [0.0, 0.5, 2.75]


def test_a_heading_other_columns_and_empty_lines_are_left_out() -> None:
    lines = ["TIMESTAMP,tokens", "2023-11-16 18:15:46.6805900,374", "", "2023-11-16 18:15:50.99,1"]
    assert read_times(lines, "f").tolist() == pytest.approx([0.0, 4.30941])


def test_time_zones_count() -> None:
    lines = ["2026-01-31T12:00:00Z", "2026-01-31T14:00:01.5+02:00"]
    assert read_times(lines, "f").tolist() == [0.0, 1.5]


def test_calls_out_of_order_are_sorted() -> None:
    assert read_times(["5", "3", "4"], "f").tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("lines", [["1", "2", "soon"], ["1"], [], ["1", "nan"], ["t", "\0", "2"]])
def test_what_is_no_time_is_said(lines: list[str]) -> None:
    with pytest.raises(Invalid):
        read_times(lines, "f")
