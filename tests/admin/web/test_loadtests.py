"""Kept load tests: the list, one report in its frame, and two held against each other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from workbench.loadtest.records import report_of, run_of

from .pages_scene import Pages, words


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def keep(pages: Pages, name: str, median: float = 0.02, **changes: object) -> None:
    """A report of 60 seconds is kept."""
    report = replace(report_of(run_of(60, median=median)), name=name, model="digits", **changes)  # type: ignore[arg-type]
    pages.api("POST", "/api/load/reports", json.loads(json.dumps(report.to_json())))


def test_reports_are_listed_with_their_verdicts(pages: Pages) -> None:
    assert "servegate load scenario smoke" in words(pages.get("/loadtests"))
    keep(pages, "good-one", passed=True, findings=("it was quick",))
    assert "Before" not in words(pages.get("/loadtests"))
    keep(pages, "bad-one", passed=False, title="<b>Evil</b>")
    answer = pages.get("/loadtests")
    said = words(answer)
    assert "passed" in said and "failed" in said and "it was quick" in said
    assert "<b>Evil" not in answer.text and 'name="a" value="good-one"' in answer.text


def test_a_report_is_shown_in_a_frame_that_runs_nothing(pages: Pages) -> None:
    keep(pages, "one")
    answer = pages.get("/loadtests/one")
    assert "<iframe" in answer.text and ' sandbox title="' in answer.text
    assert 'src="/api/load/reports/one/report.html"' in answer.text
    framed = pages.get("/api/load/reports/one/report.html").headers["content-security-policy"]
    assert "frame-ancestors 'self'" in framed and "sandbox" in framed
    assert pages.get("/loadtests/none").status_code == 404
    for query, status in (("", 422), ("a=one&b=one", 422), ("a=one&b=none", 404)):
        assert pages.get(f"/loadtests/compare?{query}").status_code == status
    assert pages.post("/loadtests/one/remove").headers["location"] == "/loadtests"
    assert pages.api("GET", "/api/load/reports") == []


def test_two_reports_are_held_against_each_other(pages: Pages) -> None:
    keep(pages, "before", 0.02)
    keep(pages, "after", 0.04)
    ratios = {
        one["name"]: one for one in pages.api("GET", "/api/load/reports/before/compare/after")
    }
    assert ratios["p50"]["ratio"] == pytest.approx(2.0, rel=0.05)
    assert ratios["p50"]["verdict"] == "slower"
    answer = pages.get("/loadtests/compare?a=before&b=after")
    path = "/api/load/reports/before/compare/after/report.html"
    assert f'src="{path}"' in answer.text
    assert "slower" in pages.get(path).text
