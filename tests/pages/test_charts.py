"""Charts: every point is drawn inside, where its axes say; names are escaped."""

import re
from xml.etree import ElementTree

import pytest

from serve.pages.charts import HEIGHT, WIDTH, Axis, Chart, ChartSeries, draw

NAME = "{http://www.w3.org/2000/svg}"


def chart(*series: ChartSeries, log: bool = False, rule: str = "") -> ElementTree.Element:
    made = Chart("A <title>", Axis("x", is_log=log), Axis("y", is_log=log), series, rule)
    return ElementTree.fromstring(draw(made))


def circles(drawn: ElementTree.Element) -> list[tuple[float, float]]:
    return [
        (float(one.attrib["cx"]), float(one.attrib["cy"])) for one in drawn.iter(NAME + "circle")
    ]


@pytest.mark.parametrize("log", [False, True])
def test_points_lie_where_their_values_are(log: bool) -> None:
    places = circles(chart(ChartSeries("m", ((1.0, 1.0), (10.0, 100.0), (100.0, 10.0))), log=log))
    assert len(places) == 3
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)
    assert places[0][0] < places[1][0] < places[2][0]
    assert places[1][1] < places[2][1] < places[0][1], "more is further up"


def test_in_logarithms_equal_factors_are_equally_far() -> None:
    (first, _), (second, _), (third, _) = circles(
        chart(ChartSeries("m", ((1.0, 1.0), (10.0, 10.0), (100.0, 100.0))), log=True)
    )
    assert second - first == pytest.approx(third - second, abs=0.2)


def test_the_diagonal_goes_through_equal_values() -> None:
    drawn = chart(ChartSeries("m", ((2.0, 2.0), (8.0, 8.0))), log=True, rule="equal")
    (line,) = (one for one in drawn.iter(NAME + "line") if one.attrib["class"] == "rule")
    (x1, y1), (x2, y2) = circles(drawn)
    ends = [float(line.attrib[end]) for end in ("x1", "y1", "x2", "y2")]
    assert ends == pytest.approx([x1, y1, x2, y2], abs=0.2)


def test_steps_hold_until_the_next_and_lines_do_not() -> None:
    points = ((0.0, 1.0), (1.0, 2.0), (2.0, 1.0))
    drawn = chart(ChartSeries("steps", points, "steps"), ChartSeries("line", points, "line"))
    steps, line = (one.attrib["d"] for one in drawn.iter(NAME + "path"))
    assert re.findall("[A-Z]", steps) == ["M", "H", "V", "H", "V"]
    assert re.findall("[A-Z]", line) == ["M", "L", "L"]


def test_nothing_and_a_single_point_are_drawn_too() -> None:
    assert not circles(chart(ChartSeries("empty", ())))
    assert len(circles(chart(ChartSeries("one", ((3.0, 3.0),)), log=True))) == 1


def test_values_beyond_an_axis_stay_at_its_end() -> None:
    made = Chart(
        "t", Axis("x", most=5.0), Axis("y"), (ChartSeries("m", ((1.0, 1.0), (50.0, 2.0))),)
    )
    (_, (x, _)) = circles(ElementTree.fromstring(draw(made)))
    assert x < WIDTH


def test_names_are_escaped_and_told_in_words() -> None:
    text = draw(Chart("<b>", Axis("x&y"), Axis("y"), (ChartSeries("<i>", ((0.0, 0.0),)),)))
    assert "<b>" not in text and "<i>" not in text and "x&amp;y" in text
    assert "&lt;i&gt;: 1 points." in text


def test_names_that_are_too_many_for_one_row_begin_another() -> None:
    names = ("an empty fleet is loaded", "a control plane starts", "a replica comes", "it goes")
    drawn = chart(*(ChartSeries(name * 2, ((1.0, 1.0), (2.0, 2.0))) for name in names))
    keys = [one.attrib for one in drawn.iter(NAME + "rect")]
    assert len(keys) == len(names)
    assert len({one["y"] for one in keys}) == 2
    ends = [float(one["x"]) + 34 + 13.2 * len(name) for one, name in zip(keys, names, strict=True)]
    assert max(ends) <= WIDTH
