"""The page of a load test: whole, without script, the verdict first, and nothing empty in it."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from math import nan
from types import MappingProxyType
from typing import Any

import pytest
from load.records import cell_of, generator_of, outline_of, report_of, run_of

from serve.load.observed import GatewayTimes, Mark, Observed, Series, TritonTimes
from serve.load.plan import Protocol
from serve.load.recording import RIGHT, Key, Record, Window
from serve.load.reporting.comparing import Ratio, compare
from serve.load.reporting.page import render, render_comparison
from serve.load.reporting.page_outcomes import meaning
from serve.load.reporting.page_plan import arrivals_words
from serve.load.reporting.page_words import bare, number, reading, seconds, share, size
from serve.load.reporting.report import Report, Run, Sweep

HOSTILE = "<script>alert(1)</script>\"'&"
OBSERVED = Observed(
    triton=(
        TritonTimes("2", 500, 0, 500, 200, 0.001, 0.0002, 0.003, 0.0001, {1: 100, 4: 100}),
        TritonTimes("3", 100, 2, 100, 100, 0.002, 0.0002, 0.004, 0.0001, {1: 100}),
    ),
    gateway=GatewayTimes(600, 0.006, 0.0007, {"no_replica": 3}, 2, 0.3, 60_000_000),
    series=(
        Series("replica", "local-0", "calls in flight", "calls", (0.0, 1.0, 2.0), (1, None, 3)),
        Series("gpu", "GPU-0", "utilisation", "share", (0.0, 1.0, 2.0), (0.1, 0.5, 0.9)),
        Series("replica", "local-0", "up", "1", (0.0, 1.0), (1.0, 1.0)),
        Series("control", "", "nothing", "B", (0.0, 1.0), (None, None)),
    ),
    marks=(Mark(2.0, "local-1 is killed"),),
    problems=("no readings of local-1: it does not answer",),
    facts={"triton": "2.61.0"},
)
FIRST_OF_EVERY_RUN = ["Over time", "Latency by percentile", "By protocol and version"]


class Seen(HTMLParser):
    """Which tags, headings and words a page has, and which of its tags are not closed."""

    EMPTY = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.headings: list[str] = []
        self.pictures: list[str] = []
        self.heads_without_scope = 0
        self.feed(page)
        assert not self.open

    @property
    def said(self) -> str:
        """All words, with usual spaces."""
        return " ".join(self.words).replace("\N{NO-BREAK SPACE}", " ")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        named = dict(attrs)
        if tag == "svg" and "in" not in str(named.get("class")).split():
            assert named.get("role") == "img"
            self.pictures.append(str(named["aria-label"]))
        self.heads_without_scope += tag == "th" and "scope" not in named
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        assert "nan" not in data.lower().split()
        if data.strip():
            self.words.append(data.strip())
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def one_run(**more: Any) -> Run:
    """A small run with failures and two versions."""
    usual: dict[str, Any] = {
        "seconds": 12,
        "rate": 50,
        "failed": {"http_503:no_replica": 0.05},
        "decisions": {"2; by=split; generation=7": 0.8, "3; by=split; generation=7": 0.2},
        "observed": OBSERVED,
        "objective": "p99<1s,errors<0.1%",
    }
    return run_of(**usual | more)


def bare_run(**more: Any) -> Run:
    """One against which nothing is observed and nothing asked."""
    return run_of(8, 20, **more)


def seen(*runs: Run, **changes: Any) -> Seen:
    """The page of a report with these runs."""
    return Seen(render(replace(report_of(*runs), **changes)))


def test_the_parts_come_in_their_order() -> None:
    assert seen(one_run()).headings == [
        "Findings",
        *FIRST_OF_EVERY_RUN,
        "Errors",
        "Where the time goes",
        "Readings over time",
        "Route decisions",
        "The generator itself",
        "What could not be observed",
        "The plan",
        "What was tested",
        "The same again",
        "Made with",
    ]


def test_a_missing_part_leaves_no_heading() -> None:
    found = seen(bare_run()).headings
    assert not {"Errors", "Where the time goes", "Readings over time"} & set(found)
    assert not {"Route decisions", "What could not be observed", "What was tested"} & set(found)


def test_a_run_without_a_single_call_has_a_page() -> None:
    empty = Run("nothing", outline_of(10), Record())
    page = seen(empty)
    assert "No call was made." in page.said and "Over time" not in page.headings


def test_every_picture_is_told_and_every_head_of_a_table_says_its_direction() -> None:
    page = seen(one_run())
    assert len(page.pictures) >= 8 and all(page.pictures)
    assert page.heads_without_scope == 0


def test_objectives_are_told_with_what_was_measured() -> None:
    page = seen(one_run(), passed=False)
    assert "Failed." in page.words and "1 objective of 2 not met." in page.said
    assert "✓ p99<1000ms" in page.said or "✓ p99<1s" in page.said
    assert "✗ errors<0.1%" in page.said


def test_the_verdict_is_neutral_where_nothing_was_asked() -> None:
    page = seen(bare_run())
    assert page.words[3] == "Measured." and "Passed." not in page.words


def test_the_generator_as_the_limit_comes_before_the_verdict() -> None:
    page = seen(one_run(busiest=0.97))
    words = page.words
    first = next(at for at, text in enumerate(words) if text.startswith("These numbers may be"))
    assert first < words.index("Failed.")
    assert sum("load generator was the limit" in each for each in words) == 1


def test_the_closed_loop_says_what_it_hides_and_has_no_intended_rate() -> None:
    page = seen(bare_run(is_open=False))
    assert "Closed loop" in page.said and "Users" in page.words
    assert "Intended rate" not in page.words and "Late starts" not in page.words


def test_each_error_is_explained_in_plain_words() -> None:
    assert "No replica holds the version, or all of them have failed." in seen(one_run()).said
    assert meaning("http_429") and meaning("timeout") and meaning("grpc_UNAVAILABLE")
    assert meaning("http_503:no_replica") != meaning("http_503")
    assert meaning("http_418") == ""


def test_a_lane_with_one_version_is_told_once() -> None:
    found = seen(bare_run(decisions={"7; by=only; generation=1": 1.0}))
    assert found.words.count("http-binary") == 2  # in the table and in the plan
    assert "7" in found.words


def test_readings_that_never_came_or_never_changed_are_not_drawn() -> None:
    page = seen(one_run())
    assert "Calls in flight" in page.words and "GPU: utilisation" in page.words
    assert "Up" not in page.words and "Control: nothing" not in page.words


def test_versions_are_drawn_over_time_only_where_their_shares_change() -> None:
    steady = "Share of the answers by version, over time"
    assert steady not in seen(one_run()).words
    record = Record()
    for second in range(20):
        version = "2; by=split" if second < 10 else "3; by=split"
        cells = {Key(0, RIGHT, version): cell_of([0.01] * 50)}
        record.add(second, Window(cells, generator_of(50)))
    assert steady in seen(Run("change", outline_of(20, 50), record)).words


def test_several_runs_are_told_together_and_then_one_by_one() -> None:
    runs = [bare_run(label=f"{rate}/s", objective="p99<1s") for rate in (20, 40)]
    sweep = Sweep("rate", "p99 in ms", (20.0, 40.0), (8.0, nan), (7.0, nan), (9.0, nan))
    page = seen(*runs, sweep=sweep, findings=("40/s is too much", "and more"), passed=True)
    assert page.tags.count("details") == 2
    assert page.headings[:3] == ["Findings", "What was found", "Runs"]
    assert page.words.index("Passed.") < page.words.index("40/s is too much")
    assert page.words.count("40/s is too much") == 1


def test_two_groups_of_runs_stand_beside_each_other() -> None:
    runs = [bare_run(label=f"{side}, round {n}") for n in (1, 2) for side in ("gateway", "direct")]
    words = seen(*runs).words
    assert words.count("round 1") == 1 and words.count("direct") == 5


def test_a_report_without_runs_has_a_page() -> None:
    assert "Measured." in seen().words


@pytest.mark.parametrize("passed", [True, False, None])
def test_whatever_comes_from_outside_stays_text(passed: bool | None) -> None:
    hostile = Observed(
        triton=(replace(OBSERVED.triton[0], version=HOSTILE),),
        gateway=replace(_gateway(), errors={HOSTILE: 1}),
        series=(Series(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (0.0, 1.0), (1.0, 2.0)),),
        marks=(Mark(1.0, HOSTILE),),
        problems=(HOSTILE,),
        facts={HOSTILE: HOSTILE},
    )
    run = one_run(
        observed=hostile, failed={HOSTILE: 0.2}, decisions={f"{HOSTILE}; by={HOSTILE}": 0.5}
    )
    lane = {**run.outline["lanes"][0], "name": HOSTILE, "address": HOSTILE, "path": HOSTILE}
    outline = {**run.outline, "lanes": [lane], "labels": {HOSTILE: HOSTILE}}
    run = replace(run, label=HOSTILE, outline=MappingProxyType(outline))
    texts = dict.fromkeys(("title", "scenario", "model", "begun", "command", "machine"), HOSTILE)
    report = replace(
        report_of(run, run),
        **texts,
        name=HOSTILE,
        findings=(HOSTILE, HOSTILE),
        passed=passed,
        sweep=Sweep(HOSTILE, HOSTILE, (1.0, 2.0), (1.0, 2.0)),
        versions={HOSTILE: HOSTILE},
    )
    ratios = (Ratio(HOSTILE, 1.0, 0.9, 1.1),)
    for text in (
        render(report),
        render(replace(report, runs=(run,))),
        render_comparison(report, report, ratios),
    ):
        page = Seen(text)
        assert "script" not in page.tags
        assert any(HOSTILE in each for each in page.words)


def test_a_comparison_says_what_is_slower_and_shows_both() -> None:
    before, after = bare_run(), bare_run(median=0.02)
    page = _compared(before, after, compare([before], [after]))
    assert any("slower" in each for each in page.words)
    assert page.headings[0] == "After against before" and page.words.count("Calls per second") == 2
    assert any(each.startswith("ratio ") for each in page.pictures)


def test_a_comparison_with_nothing_to_compare_says_so() -> None:
    page = _compared(bare_run(), bare_run(), ())
    assert "Nothing can be compared." in page.words
    assert "After against before" not in page.headings


def test_better_and_worse_at_once_is_neither() -> None:
    ratios = (Ratio("p50", 0.5, 0.4, 0.6), Ratio("p99", 2.0, 1.8, 2.2))
    text = render_comparison(report_of(bare_run()), report_of(bare_run()), ratios)
    assert 'class="verdict doubt"' in text
    assert 'class="verdict bad"' in render_comparison(
        report_of(bare_run()), report_of(bare_run()), ratios[1:]
    )


def test_a_report_that_was_kept_and_read_again_gives_the_same_page() -> None:
    report = replace(
        report_of(one_run(protocols=(Protocol.GRPC, Protocol.HTTP_JSON))), passed=False
    )
    again = Report.from_json(json.loads(json.dumps(report.to_json())))
    assert render(again) == render(report)


def test_numbers_have_three_digits_and_a_unit_by_their_size() -> None:
    told = [seconds(each) for each in (0.0000123, 0.00456, 0.9999, 1.234, nan, -0.002)]
    assert [each.replace("\N{NO-BREAK SPACE}", " ") for each in told] == [
        "12 µs",
        "4.56 ms",
        "1.00 s",
        "1.23 s",
        "–",
        "−2.00 ms",
    ]
    assert number(12345.6) == "12\N{NARROW NO-BREAK SPACE}346" and number(nan) == "–"
    assert [bare(each) for each in ("2.50 ms", "10.0 s", "0 µs", "100")] == [
        "2.5 ms",
        "10 s",
        "0",
        "100",
    ]


def test_readings_are_told_in_their_units() -> None:
    told = [reading(value, unit) for value, unit in ((0.5, "share"), (3e9, "B"), (7, "calls"))]
    assert [each.replace("\N{NO-BREAK SPACE}", " ") for each in told] == [
        "50.0 %",
        "3.00 GB",
        "7.00",
    ]
    assert reading(None, "W") == share(None) == size(None) == "–"


def test_arrivals_are_told_in_words() -> None:
    plan = {"rate": 200.0, "shape": "ramp", "spacing": "poisson", "levels": [10.0, 200.0]}
    assert arrivals_words(plan) == "from 10/s to 200/s, Poisson"
    assert "at even steps" in arrivals_words({**plan, "shape": "constant", "spacing": "even"})
    spike = {**plan, "shape": "spike", "levels": [5.0], "at": 30.0, "lasting": 10.0}
    assert "5 times that" in arrivals_words(spike)


def _gateway() -> GatewayTimes:
    assert OBSERVED.gateway is not None
    return OBSERVED.gateway


def _compared(before: Run, after: Run, ratios: tuple[Ratio, ...]) -> Seen:
    return Seen(render_comparison(report_of(before), report_of(after), ratios))
