"""The picture of throughput against latency."""

from xml.etree import ElementTree

from serve.load.tuning.pareto import Dot, front, pareto_svg


def dot(rate: float, latency: float, kind: str = "met") -> Dot:
    return Dot(rate, latency, kind, f"{rate:g} <&")


def test_the_curve_has_what_nothing_else_beats():
    dots = [dot(10, 0.01), dot(20, 0.02), dot(15, 0.03), dot(20, 0.05), dot(5, 0.01)]
    assert front(dots) == (dot(10, 0.01), dot(20, 0.02))


def test_the_picture_is_valid_and_escapes_what_it_is_told():
    svg = pareto_svg([dot(10, 0.01), dot(50, 0.02, "predicted"), dot(20, 2.0, "missed")], 0.05)
    root = ElementTree.fromstring(svg)
    assert len([one for one in root.iter() if one.tag.endswith("circle")]) == 3


def test_nothing_measured_is_no_picture():
    assert pareto_svg([dot(50, 0.02, "predicted")], 0.05) == ""
