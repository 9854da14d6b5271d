"""Pictures of a load report: scales that fit, lines that break where nothing is known; amounts."""

from math import inf, nan
from xml.etree import ElementTree

import pytest

from serve.workbench.loadtest.reports.amounts import figures, rate_text, share_text, time_text
from serve.workbench.loadtest.reports.drawing_bars import (
    batches_svg,
    parts_svg,
    percentiles_svg,
)
from serve.workbench.loadtest.reports.drawing_frame import (
    PlotLine,
    Scale,
    fitting,
    line_path,
    linear,
)
from serve.workbench.loadtest.reports.drawing_marks import marks_placed
from serve.workbench.loadtest.reports.drawing_sweep import ratio_scale, ratio_svg, sweep_svg
from serve.workbench.loadtest.reports.drawing_time import (
    latency_svg,
    rate_svg,
    readings_svg,
)
from serve.workbench.loadtest.reports.page_words import number

UNIT = Scale(0.0, 10.0, (0.0, 10.0))
RISING = PlotLine("p50", "p50", [(0.5, 0.01), (1.5, 0.02), (2.5, 0.04)])


def whole(svg: str) -> ElementTree.Element:
    """The picture, if it is well-formed, says in words what it shows, and holds no nan."""
    picture = ElementTree.fromstring(svg)
    assert picture.get("role") == "img" and picture.get("aria-label")
    assert "nan" not in svg and "inf" not in svg.replace("infer", "")
    return picture


def test_a_linear_scale_ends_at_a_round_number_above_the_largest_value() -> None:
    lasts = {0.9: 1.0, 1.0: 1.0, 7.2: 8.0, 130: 150, 0.0041: 0.006, 0: 1.0}
    assert {most: linear(most).high for most in lasts} == pytest.approx(lasts)
    assert {linear(most).ticks[0] for most in lasts} == {0}


def test_a_scale_is_logarithmic_only_where_values_lie_far_apart() -> None:
    assert not fitting([0.010, 0.020, nan]).is_log
    assert fitting([0.002, 3.0, nan]).is_log
    assert not fitting([nan, inf, 0.0]).is_log


def test_a_line_is_broken_where_nothing_is_known() -> None:
    line = PlotLine("p99", "p99", [(0, 1), (1, 2), (2, nan), (3, 4)])
    path = line_path(line, UNIT, UNIT, 100)
    assert path.count("M") == 2 and path.count("L") == 1 and 'class="line p99"' in path
    assert line_path(PlotLine("", "", [(0, nan)]), UNIT, UNIT, 100) == ""


def test_latency_over_time_says_its_range_and_marks_in_words() -> None:
    picture = whole(latency_svg([RISING], 3, [(1.0, "a replica is killed")]))
    said = str(picture.get("aria-label"))
    assert "p50 between 10.0 ms and 40.0 ms" in said and "at 1 s a replica is killed" in said


def test_nothing_is_drawn_where_nothing_was_measured() -> None:
    nothing = PlotLine("p50", "p50", [(0.5, nan)])
    assert latency_svg([nothing], 3) == ""
    assert readings_svg([nothing], 3, (), number, spoken="x") == ""
    assert rate_svg((), 3) == ""
    assert parts_svg([("queue", 0.0, "part-queue")]) == ""
    assert batches_svg({}) == "" and batches_svg({4: 0}) == ""
    assert percentiles_svg([nothing]) == ""
    assert sweep_svg(("x", "y"), (1.0,), (nan,)) == ""


def test_words_of_marks_never_meet_another_mark() -> None:
    marks = [
        (10.0, "a"),
        (40.0, "half of the calls to 3"),
        (42.0, "local-1 is down"),
        (118.0, "the end"),
    ]
    assert marks_placed(marks, 120) == ((0, False), (1, False), (0, False), (0, True))


def test_ratios_are_seen_on_both_sides_of_one_alike() -> None:
    scale = ratio_scale([0.8, 1.1, nan])
    assert scale.at(1.0) == pytest.approx(0.5)
    assert scale.at(0.5) == pytest.approx(1 - scale.at(2.0))
    whole(ratio_svg(0.8, 0.7, 0.9, scale, "good"))
    assert not list(whole(ratio_svg(nan, nan, nan, scale, "calm")).iter("circle"))


# --- amounts: three figures, a unit, and never more than was measured -----------------------------


def test_times_have_the_unit_of_their_size() -> None:
    times = {0.0: "0 µs", 0.00085: "850 µs", 0.000999: "999 µs", nan: "–", inf: "–"}
    times |= {0.0009996: "1.00 ms", 0.0123: "12.3 ms", 0.9994: "999 ms"}
    times |= {0.9996: "1.00 s", 59.96: "60.0 s", 192: "3.2 min"}
    assert {each: time_text(each) for each in times} == times


def test_shares_are_never_rounded_to_none_or_all() -> None:
    shares = {0.0: "0 %", 1.0: "100 %", 0.5: "50.0 %", 0.00123: "0.12 %", 0.0000312: "0.003 %"}
    shares |= {0.99999: "99.999 %", nan: "–"}
    assert {each: share_text(each) for each in shares} == shares


def test_numbers_have_three_figures() -> None:
    numbers = {0: "0.00", 0.0123: "0.012", 1.234: "1.23", 9.996: "10.0", 99.96: "100"}
    assert {each: figures(each) for each in numbers} == numbers
    assert figures(1e5) == "100000"
    assert (rate_text(198.2), rate_text(nan)) == ("198/s", "–")
