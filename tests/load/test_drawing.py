"""Pictures of a load report: scales that fit, lines that break where nothing is known, words."""

import re
from math import inf, nan
from xml.etree import ElementTree

import pytest

from serve.load.reporting.drawing import (
    Line,
    Scale,
    clock,
    fitting,
    line_path,
    linear,
    logarithmic,
    time_of,
)
from serve.load.reporting.drawing_bars import (
    batches_svg,
    nines,
    parts_svg,
    percentiles_svg,
    shares_up_to,
)
from serve.load.reporting.drawing_marks import marks_placed, moment
from serve.load.reporting.drawing_sweep import ratio_scale, ratio_svg, sweep_svg
from serve.load.reporting.drawing_time import (
    Tick,
    latency_svg,
    rate_scale,
    rate_svg,
    readings_svg,
    shares_svg,
)
from serve.load.reporting.page_words import number

HOSTILE = "<script>alert(1)</script>\"'&"
UNIT = Scale(0.0, 10.0, (0.0, 10.0))
RISING = Line("p50", "p50", [(0.5, 0.01), (1.5, 0.02), (2.5, 0.04)])
TICKS = (Tick(0, 1, 100, 90, 100, 0), Tick(1, 2, 100, 0, 80, 20), Tick(2, 3, 100, 190, 100, 0))


def whole(svg: str) -> ElementTree.Element:
    """The picture, if it is well-formed, says in words what it shows, and holds no nan."""
    picture = ElementTree.fromstring(svg)
    assert picture.get("role") == "img" and picture.get("aria-label")
    assert "nan" not in svg and "inf" not in svg.replace("infer", "")
    return picture


@pytest.mark.parametrize(
    "most, last", [(0.9, 1.0), (1.0, 1.0), (7.2, 8.0), (130, 150), (0.0041, 0.006), (0, 1.0)]
)
def test_a_linear_scale_ends_at_a_round_number_above_the_largest_value(
    most: float, last: float
) -> None:
    assert linear(most).high == pytest.approx(last)
    assert linear(most).ticks[0] == 0


def test_a_scale_is_logarithmic_only_where_values_lie_far_apart() -> None:
    assert not fitting([0.010, 0.020, nan]).is_log
    assert fitting([0.002, 3.0, nan]).is_log
    assert not fitting([nan, inf, 0.0]).is_log


def test_a_logarithmic_scale_has_few_ticks_and_holds_its_ends() -> None:
    scale = logarithmic(0.0031, 4.8)
    assert scale.low <= 0.0031 and scale.high >= 4.8
    assert [f"{tick:.3g}" for tick in scale.ticks] == ["0.01", "0.1", "1"]
    assert scale.at(scale.low) == 0 and scale.at(scale.high) == 1
    assert logarithmic(5.0, 5.0).low < logarithmic(5.0, 5.0).high


def test_what_lies_outside_a_scale_stands_at_its_end() -> None:
    assert (UNIT.at(-5), UNIT.at(5), UNIT.at(50)) == (0, 0.5, 1)
    assert Scale(0.1, 10, (), True).at(0) == 0


@pytest.mark.parametrize("seconds", [1, 7, 60, 100, 333, 3600, 86400, 1e6])
def test_a_clock_has_at_most_seven_ticks(seconds: float) -> None:
    assert 2 <= len(clock(seconds).ticks) <= 7


def test_a_long_run_is_told_in_minutes_and_hours() -> None:
    words = [time_of(*each).replace("\N{NO-BREAK SPACE}", " ") for each in ((90, 120), (300, 1800))]
    assert words == ["90 s", "5 min"]
    assert time_of(7200, 86400) == "2\N{NO-BREAK SPACE}h"


def test_a_line_is_broken_where_nothing_is_known() -> None:
    line = Line("p99", "p99", [(0, 1), (1, 2), (2, nan), (3, 4)])
    path = line_path(line, UNIT, UNIT, 100)
    assert path.count("M") == 2 and path.count("L") == 1 and 'class="line p99"' in path
    assert line_path(Line("", "", [(0, nan)]), UNIT, UNIT, 100) == ""


def test_latency_over_time_says_its_range_and_marks_in_words() -> None:
    picture = whole(latency_svg([RISING], 3, [(1.0, "a replica is killed")]))
    said = str(picture.get("aria-label"))
    assert "p50 between 10.0 ms and 40.0 ms" in said and "at 1 s a replica is killed" in said


def test_nothing_is_drawn_where_nothing_was_measured() -> None:
    nothing = Line("p50", "p50", [(0.5, nan)])
    assert latency_svg([nothing], 3) == ""
    assert readings_svg([nothing], 3, (), number, spoken="x") == ""
    assert rate_svg((), 3) == ""
    assert parts_svg([("queue", 0.0, "part-queue")]) == ""
    assert batches_svg({}) == "" and batches_svg({4: 0}) == ""
    assert percentiles_svg([nothing]) == ""
    assert sweep_svg(("x", "y"), (1.0,), (nan,)) == ""


def test_failed_calls_are_filled_and_told() -> None:
    svg = rate_svg(TICKS, 3)
    assert "20 calls failed" in str(whole(svg).get("aria-label"))
    assert 'class="block failed"' in svg
    assert 'class="block failed"' not in rate_svg(TICKS[:1], 3)


def test_only_the_open_loop_intends_a_rate() -> None:
    assert "intended" in rate_svg(TICKS, 3)
    assert "intended" not in rate_svg(TICKS, 3, is_open=False)


def test_a_burst_of_answers_after_a_stall_does_not_flatten_the_rate() -> None:
    burst = Tick(3, 4, 100, 5000, 100, 0)
    assert rate_scale((*TICKS, burst)).high < 500


def test_words_of_marks_never_meet_another_mark() -> None:
    marks = [
        (10.0, "a"),
        (40.0, "half of the calls to 3"),
        (42.0, "local-1 is down"),
        (118.0, "the end"),
    ]
    assert marks_placed(marks, 120) == ((0, False), (1, False), (0, False), (0, True))


def test_marks_without_room_for_their_words_are_numbered() -> None:
    many = [(float(at), "something") for at in range(12)]
    assert marks_placed(many, 120) is None
    assert marks_placed([(60.0, "so many words " * 12)], 120) is None
    texts = [each.text for each in whole(latency_svg([RISING], 120, many)).iter("text")]
    assert "12" in texts and "something" not in texts


def test_moments_of_marks_are_in_seconds() -> None:
    assert [moment(at) for at in (0.0, 60.0, 2.55)] == [
        f"{each}\N{NO-BREAK SPACE}s" for each in ("0", "60", "2.5")
    ]


def test_every_further_nine_gets_the_same_room() -> None:
    assert [round(nines(each)) for each in (0.9, 0.99, 0.999)] == [1, 2, 3]
    points = shares_up_to(1000)
    assert points[-1] == pytest.approx(0.999) and list(points) == sorted(points)
    assert shares_up_to(1) == shares_up_to(0) == ()


def test_percentiles_are_drawn_only_as_far_as_there_are_calls() -> None:
    line = Line("latency", "p99", [(each, 0.01) for each in shares_up_to(1000)])
    texts = [str(each.text) for each in whole(percentiles_svg([line])).iter("text")]
    shown = [each.replace("\N{NO-BREAK SPACE}", " ") for each in texts if "%" in each]
    assert shown == ["50 %", "90 %", "99 %", "99.9 %"]


def test_the_gap_between_latency_and_service_time_is_filled() -> None:
    shares = shares_up_to(100)
    slow = Line("latency", "p99", [(each, 0.1) for each in shares])
    fast = Line("service", "p50", [(each, 0.01) for each in shares])
    assert 'class="block gap"' in percentiles_svg([slow, fast])
    assert 'class="block gap"' not in percentiles_svg([slow])


def test_the_parts_of_a_bar_fill_it() -> None:
    picture = whole(parts_svg([("queue", 0.003, "part-queue"), ("infer", 0.001, "part-infer")]))
    widths = [str(each.get("width")) for each in picture.iter("rect")]
    assert widths == ["75.000%", "25.000%"]


def test_batch_sizes_that_never_occurred_keep_their_place_until_there_are_too_many() -> None:
    assert len(list(whole(batches_svg({1: 5, 4: 2})).iter("rect"))) == 4
    assert len(list(whole(batches_svg({1: 5, 512: 2})).iter("rect"))) == 2
    many = dict.fromkeys(range(1, 129), 1)
    titles = [str(each.text) for each in whole(batches_svg(many)).iter("title")]
    assert len(titles) <= 24
    assert sum(int(re.findall(r"(\d+) executions", each)[0]) for each in titles) == 128


def test_shares_of_versions_are_stacked_to_the_whole() -> None:
    spans = [(0.0, 1.0, [3, 1]), (1.0, 2.0, [0, 0]), (2.0, 3.0, [0, 5])]
    svg = shares_svg((("2", "c0"), ("3", "c1")), spans, 3.0)
    whole(svg)
    assert 'd="M0.0 90.0V22.5H333.3V90.0z"' in svg


def test_a_sweep_has_a_point_and_a_whisker_for_each_value_that_is_known() -> None:
    picture = whole(
        sweep_svg(("rate", "p99"), (1, 2, 64), (1.0, nan, 3.0), (0.5, nan, nan), (1.5, nan, nan))
    )
    assert len(list(picture.iter("circle"))) == 2
    assert len([each for each in picture.iter("line") if "whisker" in str(each.get("class"))]) == 1


def test_ticks_of_a_sweep_stand_apart() -> None:
    xs = (100.0, 200.0, 205.0, 207.5, 400.0)
    ticks = list(whole(sweep_svg(("rate", "p99"), xs, xs)).iter("text"))
    assert [str(each.text) for each in ticks][-4:] == ["100", "200", "300", "400"]


def test_ratios_are_seen_on_both_sides_of_one_alike() -> None:
    scale = ratio_scale([0.8, 1.1, nan])
    assert scale.at(1.0) == pytest.approx(0.5)
    assert scale.at(0.5) == pytest.approx(1 - scale.at(2.0))
    whole(ratio_svg(0.8, 0.7, 0.9, scale, "good"))
    assert not list(whole(ratio_svg(nan, nan, nan, scale, "calm")).iter("circle"))


def test_whatever_something_is_called_stays_text() -> None:
    marks = [(1.0, HOSTILE)]
    for svg in (
        latency_svg([Line(HOSTILE, "p50", RISING.points)], 3, marks, notes=[(0, 1, HOSTILE)]),
        rate_svg(TICKS, 3, marks, notes=[(0, 1, HOSTILE)]),
        readings_svg([RISING], 3, marks, lambda value: HOSTILE, spoken=HOSTILE),
        shares_svg(((HOSTILE, "c0"),), [(0.0, 1.0, [1])], 3.0, marks),
        parts_svg([(HOSTILE, 1.0, "part-queue")]),
        percentiles_svg([Line(HOSTILE, "p50", [(0.5, 1.0), (0.9, 2.0)])]),
        sweep_svg((HOSTILE, HOSTILE), (1.0, 2.0), (3.0, 4.0)),
    ):
        assert not [each for each in whole(svg).iter() if each.tag.endswith("script")]
