"""Results become a page and pictures."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from loadtests.bench import pictures, report
from loadtests.bench.footprint import Footprint
from loadtests.bench.gateway import DUTIES
from loadtests.bench.measuring import Measured, Plan
from loadtests.bench.results import Results
from loadtests.bench.rounds import Line, Ratio
from loadtests.bench.rows import ROWS
from loadtests.bench.streaming import Streamed

EMPTY = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"


def a_line(target, ratio=1.0):
    known = Ratio(ratio, ratio * 0.9, ratio * 1.1)
    return Line(target, 1000, 0, 1000.0, known, 10.0 * ratio, known, 0.0, 100, 200, 50, ratio)


def some_results():
    lines = (
        replace(a_line("direct"), cpu=None, cpu_ratio=None, added_p50_ratio=None),
        *(a_line("nginx"), a_line("envoy", 4.0), a_line("servegate", 1.5)),
    )
    return Results(
        date="2026-01-02",
        machine="a machine",
        software=("nginx 1.2.3",),
        plan=Plan(3, 2.0, "nginx", "direct"),
        duties=DUTIES,
        measured=(Measured(ROWS[0], lines, 0.123),),
        streamed=(Streamed("servegate", "request", 1.5, 0.7, 1.25),),
        footprints=(Footprint("servegate", 38.0, 12.0, 11.0),),
        shares={1: 900, 2: 100},
        problems=(),
    )


def test_results_are_the_same_after_they_were_saved_and_loaded(tmp_path):
    results = some_results()
    results.save(tmp_path / "folder" / "results.json")
    assert Results.load(tmp_path / "folder" / "results.json") == results


def test_the_page_says_when_where_and_with_which_features():
    page = report.page(some_results())
    assert "Measured on 2026-01-02: a machine; nginx 1.2.3." in page
    assert "Features active in Servegate in all rows: two replicas, 90/10 split" in page
    assert "Other processes used 12% of the proxy's core." in page
    assert "version 2 got 10.00% (configured: 10 %)" in page


def test_only_the_part_between_the_markers_is_replaced():
    text = report.replace_between(EMPTY, "new")
    assert text == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    assert report.replace_between(text, "new") == text


def test_a_picture_is_well_formed_and_tells_its_values_in_words():
    picture = pictures.Picture(
        "a <title>", ("one", "two"), (pictures.Group("first & last", (2.5, None)),), "nginx"
    )
    root = ET.fromstring(pictures.svg(picture))
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == "a <title>"
    assert root.find(f"{space}desc").text == "first & last: one 2.50."
