"""The picture of a comparison: well-formed, told in words, and nothing outside of its panel."""

from dataclasses import replace
from xml.etree import ElementTree

from serve.workbench.simulator.cli.fronts_picture import SCALERS, WIDE, svg
from serve.workbench.simulator.comparison import FIRST_HALF, FIXED, HINDSIGHT, KPA, OURS
from serve.workbench.simulator.fronts import FrontPoint

HERE = FrontPoint("on & off", OURS, "", True, 0.02, 0.0, 10.0, 1.5, 6.0, 5)
POINTS = [
    HERE,
    replace(HERE, scaler=KPA, parameter="70 %", late=0.0, cost=9.0),
    replace(HERE, scaler=KPA, parameter="90 %", is_usual=False, late=1.0, cost=0.5),
]


def test_it_is_a_picture_that_is_told_in_words() -> None:
    root = ElementTree.fromstring(svg(POINTS, "late < cheap"))
    words = [one.text or "" for one in root.iter() if one.tag.endswith(("title", "desc", "text"))]
    assert "late < cheap" in words and "on & off" in words
    assert any("on & off, servegate: 2 % late at 1.50 times the oracle." in one for one in words)


def test_what_is_too_dear_or_too_rare_stands_at_the_edge() -> None:
    root = ElementTree.fromstring(svg(POINTS, "title"))
    dots = [one for one in root.iter() if one.tag.endswith("circle")][len(SCALERS) :]
    assert len(dots) == 3
    assert all(0 <= float(one.attrib["cx"]) <= WIDE for one in dots)


def test_fixed_fleets_are_dots_without_a_line() -> None:
    fleets = [
        replace(HERE, scaler=FIXED, parameter=HINDSIGHT, late=0.01, cost=1.2),
        replace(HERE, scaler=FIXED, parameter=FIRST_HALF, late=0.1, cost=0.9),
    ]
    root = ElementTree.fromstring(svg(fleets, "title"))
    told = [one.text or "" for one in root.iter() if one.tag.endswith("title")]
    assert "fixed by the first half: 10 % late, × 0.90" in told
    assert not [one for one in root.iter() if one.tag.endswith("polyline")]
