"""Results become a page and pictures."""

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace

import pytest

from loadtests.bench import pictures, report
from loadtests.bench.footprint import Footprint, further
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


def test_results_are_plain_json():
    assert json.loads(json.dumps(asdict(some_results())))["shares"] == {"1": 900, "2": 100}


def test_the_page_says_when_where_and_with_which_duties():
    page = report.page(some_results())
    assert "Measured on 2026-01-02: a machine; nginx 1.2.3." in page
    assert "duties in all rows: two replicas, 90/10 split" in page
    assert "Strangers had 12% of the proxy's core." in page
    assert "version 2 got 10.00% (asked: 10 %)" in page


def test_a_row_gives_the_ratio_with_its_spread_and_the_goal():
    assert "| HTTP 64 B | 4.00 (3.60–4.40) | 1.50 (1.35–1.65) | ≤ 1.6 |" in report.page(
        some_results()
    )


def test_the_page_gives_memory_and_streamed_bodies():
    page = report.page(some_results())
    assert "| 1 GiB sent: memory grows by, MiB | – | – | 1.2 | ≤ 2 |" in page
    assert "| each further worker, MiB | – | – | 11.0 | ≤ 15 |" in page


def test_only_the_part_between_the_markers_is_replaced():
    text = report.replace_between(EMPTY, "new")
    assert text == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    assert report.replace_between(text, "new") == text


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="lacks"):
        report.replace_between("nothing here", "new")


def test_the_project_page_has_the_markers():
    text = report.PAGE.read_text()
    assert report.BEGIN in text
    assert report.END in text


def test_a_transformer_beside_the_gateway_has_a_table_of_its_own():
    lines = (a_line("nginx"), a_line("servegate", 2.0), a_line("kserve", 200.0))
    page = report.page(some_results(), Measured(ROWS[1], lines))
    assert "The gateway needs 1/100 of the CPU time." in page
    assert "| a KServe transformer | 200.00 | 200.00 (180.00–220.00) |" in page


def test_each_further_worker_is_what_the_whole_tree_grows_by():
    one, three = Footprint("a", 40.0, 20.0), Footprint("a", 70.0, 12.0)
    assert further(one, three, 3) == 11.0


def test_a_picture_is_well_formed_and_tells_its_values_in_words():
    picture = pictures.Picture(
        "a <title>", ("one", "two"), (pictures.Group("first & last", (2.5, None)),), "nginx"
    )
    root = ET.fromstring(pictures.svg(picture))
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == "a <title>"
    assert root.find(f"{space}desc").text == "first & last: one 2.50."


def test_bars_are_as_long_as_their_values_and_stay_inside():
    groups = (pictures.Group("a", (2.0,)), pictures.Group("b", (4.0,)))
    root = ET.fromstring(pictures.svg(pictures.Picture("t", ("one",), groups, "nginx")))
    bars = [
        one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("height") == "13"
    ]
    short, long = (float(bar.get("width")) for bar in bars)
    assert long == pytest.approx(2 * short, abs=0.2)
    assert pictures.LABELS + long + pictures.RIGHT <= pictures.WIDTH
