"""The page of a load test: whole, without script, the verdict first, and nothing empty in it.

At the end: hints, as they are recorded from the gateway, drawn and told in words.
"""

import json
from dataclasses import replace
from math import nan
from types import MappingProxyType
from typing import Any

from control.live.advised import model, told
from workbench.loadtest.pages import HOSTILE, Seen
from workbench.loadtest.records import report_of, run_of, run_of_seconds

from serve.capacity.scaling.signals import Code, Reason
from serve.workbench.loadtest.observations.hints import HintWatch
from serve.workbench.loadtest.observed import (
    GatewayTimes,
    Observed,
    ObservedEvent,
    ObservedSeries,
    TritonTimes,
)
from serve.workbench.loadtest.plan import LaneProtocol
from serve.workbench.loadtest.reports.comparison import Ratio, compare
from serve.workbench.loadtest.reports.findings import findings
from serve.workbench.loadtest.reports.page import render, render_comparison
from serve.workbench.loadtest.reports.page_run import meaning
from serve.workbench.loadtest.reports.page_words import bare, number, seconds
from serve.workbench.loadtest.reports.report import LoadReport, LoadRun, Sweep

GATEWAY = GatewayTimes(600, 0.006, 0.0007, {"no_replica": 3}, 2, 0.3, 60_000_000)
OBSERVED = Observed(
    triton=(
        TritonTimes("2", 500, 0, 500, 200, 0.001, 0.0002, 0.003, 0.0001, {1: 100, 4: 100}),
        TritonTimes("3", 100, 2, 100, 100, 0.002, 0.0002, 0.004, 0.0001, {1: 100}),
    ),
    gateway=GATEWAY,
    series=(
        ObservedSeries("replica", "local-0", "calls in flight", "calls", (0.0, 1.0), (1, None)),
        ObservedSeries("gpu", "GPU-0", "utilisation", "share", (0.0, 1.0, 2.0), (0.1, 0.5, 0.9)),
        ObservedSeries("replica", "local-0", "up", "1", (0.0, 1.0), (1.0, 1.0)),
        ObservedSeries("control", "", "nothing", "B", (0.0, 1.0), (None, None)),
    ),
    marks=(ObservedEvent(2.0, "local-1 is killed"),),
    problems=("no readings of local-1: it does not answer",),
    facts={"triton": "2.61.0"},
)


def one_run(**more: Any) -> LoadRun:
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


def bare_run(**more: Any) -> LoadRun:
    """One against which nothing is observed and nothing asked."""
    return run_of(8, 20, **more)


def seen(*runs: LoadRun, **changes: Any) -> Seen:
    """The page of a report with these runs."""
    return Seen(render(replace(report_of(*runs), **changes)))


def test_the_parts_come_in_their_order() -> None:
    assert seen(one_run()).headings == [
        "Findings",
        "Over time",
        "Latency by percentile",
        "By protocol and version",
        "Errors",
        "Time per call",
        "Metrics over time",
        "Route decisions",
        "Load generator",
        "Not observed",
        "Test plan",
        "Server under test",
        "Command",
        "Environment",
    ]


def test_a_missing_part_leaves_no_heading() -> None:
    missing = {"Errors", "Time per call", "Metrics over time", "Route decisions", "Not observed"}
    assert not (missing | {"Server under test"}) & set(seen(bare_run()).headings)


def test_objectives_are_told_with_what_was_measured() -> None:
    page = seen(one_run(), passed=False)
    assert "Failed." in page.words and "1 of 2 objectives not met." in page.said
    assert "✓ p99<1000ms" in page.said or "✓ p99<1s" in page.said
    assert "✗ errors<0.1%" in page.said


def test_the_generator_as_the_limit_comes_before_the_verdict() -> None:
    page = seen(one_run(busiest=0.97))
    words = page.words
    first = next(at for at, text in enumerate(words) if text.startswith("These numbers may"))
    assert first < words.index("Failed.")
    assert sum("load generator was the bottleneck" in each for each in words) == 1


def test_the_closed_loop_says_what_it_hides_and_has_no_intended_rate() -> None:
    page = seen(bare_run(is_open=False))
    assert "Closed loop" in page.said and "Users" in page.words
    assert "Intended rate" not in page.words and "Late starts" not in page.words


def test_each_error_is_explained_in_plain_words() -> None:
    assert "No replica is ready for the version: none has loaded it" in seen(one_run()).said
    assert meaning("http_429") and meaning("timeout") and meaning("grpc_UNAVAILABLE")
    assert meaning("http_503:no_replica") != meaning("http_503")
    assert meaning("http_418") == ""


def test_several_runs_are_told_together_and_then_one_by_one() -> None:
    runs = [bare_run(label=f"{rate}/s", objective="p99<1s") for rate in (20, 40)]
    sweep = Sweep("rate", "p99 in ms", (20.0, 40.0), (8.0, nan), (7.0, nan), (9.0, nan))
    page = seen(*runs, sweep=sweep, findings=("40/s is too much", "and more"), passed=True)
    assert page.tags.count("details") == 2
    assert page.headings[:3] == ["Findings", "Results", "Runs"]
    assert page.words.index("Passed.") < page.words.index("40/s is too much")
    assert page.words.count("40/s is too much") == 1


def test_whatever_comes_from_outside_stays_text() -> None:
    hostile = Observed(
        triton=(replace(OBSERVED.triton[0], version=HOSTILE),),
        gateway=replace(GATEWAY, errors={HOSTILE: 1}),
        series=(ObservedSeries(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (0.0, 1.0), (1.0, 2.0)),),
        marks=(ObservedEvent(1.0, HOSTILE),),
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
        passed=False,
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


def test_shares_of_versions_are_drawn_over_time_where_they_change() -> None:
    steady, other = (
        bare_run(decisions={"1; by=split": share, f"{HOSTILE}; by=split": 1 - share})
        for share in (0.9, 0.3)
    )
    halves = [steady] * 4 + [other] * 4
    moving = run_of_seconds(8, lambda second: halves[second].record.windows[second], rate=20)
    drawn = f"share of the responses by version over time: 1, {HOSTILE}"
    page = seen(moving)
    assert drawn in page.pictures and "script" not in page.tags
    assert not any(each.startswith("share of") for each in seen(steady).pictures)


def test_a_comparison_says_what_is_slower_and_shows_both() -> None:
    before, after = bare_run(), bare_run(median=0.02)
    ratios = compare([before], [after])
    page = Seen(render_comparison(report_of(before), report_of(after), ratios))
    assert any("slower" in each for each in page.words)
    assert page.headings[0] == "After compared with before"
    assert page.words.count("Calls per second") == 2
    assert any(each.startswith("ratio ") for each in page.pictures)


def test_a_report_that_was_kept_and_read_again_gives_the_same_page() -> None:
    report = replace(
        report_of(one_run(protocols=(LaneProtocol.GRPC, LaneProtocol.HTTP_JSON))), passed=False
    )
    again = LoadReport.from_json(json.loads(json.dumps(report.to_json())))
    assert render(again) == render(report)


def test_numbers_have_three_digits_and_a_unit_by_their_size() -> None:
    times = {0.0000123: "12 µs", 0.00456: "4.56 ms", 0.9999: "1.00 s", -0.002: "−2.00 ms", nan: "–"}
    assert {each: seconds(each).replace("\N{NO-BREAK SPACE}", " ") for each in times} == times
    assert number(12345.6) == "12\N{NARROW NO-BREAK SPACE}346" and number(nan) == "–"
    ticks = {"2.50 ms": "2.5 ms", "10.0 s": "10 s", "0 µs": "0", "100": "100"}
    assert {each: bare(each) for each in ticks} == ticks


# --- hints ----------------------------------------------------------------------------------------


def hints(*pools: Any) -> dict[str, Any]:
    """`/api/hints`."""
    return {"hints": [one.to_json() for one in pools]}


def recorded(*pages: dict[str, Any]) -> HintWatch:
    """Each page two seconds after the one before."""
    watch = HintWatch("digits")
    for place, each in enumerate(pages):
        watch.add(2.0 * place, each)
    return watch


def run_with(watch: HintWatch) -> LoadRun:
    """A run of eight seconds that was advised."""
    return run_of(8, 20, observed=Observed(series=watch.series, hints=watch.advice))


GROWING = (
    hints(told(desired=2, ready=2, demand=1.2, reasons=(Reason(Code.STEADY, "2 are right"),))),
    hints(told(desired=4, ready=2, demand=2.9)),
    hints(told(desired=4, ready=2, starting=2, demand=3.1)),
    hints(told(desired=4, ready=4, demand=3.0)),
)


def test_numbers_are_recorded_over_time_and_words_where_they_change() -> None:
    watch = recorded(*GROWING)
    assert {(one.of, one.name): one.values for one in watch.series} == {
        ("default", "ready"): (2, 2, 2, 4),
        ("default", "wanted"): (2, 4, 4, 4),
        ("default", "demand"): (1.2, 2.9, 3.1, 3.0),
    }
    assert [(one.at, one.desired, one.reasons[0][0]) for one in watch.advice] == [
        (0.0, 2, "steady"),
        (2.0, 4, "demand"),
    ]


def test_only_pools_that_hold_the_model_are_told() -> None:
    watch = recorded(hints(told(), told("t4", models=(model("other"),))))
    assert {one.pool for one in watch.advice} == {one.of for one in watch.series} == {"default"}


def test_of_very_many_pools_only_those_that_hold_the_model_are_asked_for_again() -> None:
    others = [told(f"p{number}", models=()) for number in range(30)]
    watch = recorded(hints(told("a pool"), *others))
    assert watch.paths == ("/api/hints/a%20pool",)
    watch.add(2.0, told("a pool", desired=4).to_json())
    assert [one.desired for one in watch.advice] == [3, 4]
    assert recorded(hints(told(), *others[:10])).paths == ("/api/hints",)


def test_the_page_draws_each_pool_and_tells_what_was_wanted_and_why() -> None:
    shown = seen(run_with(recorded(*GROWING)))
    assert "Scaling hints" in shown.headings
    assert (
        "replicas of pool default over time: ready, 2 to 4; desired, 2 to 4; demand, 1.2 to 3.1"
        in (text.replace("\N{NO-BREAK SPACE}", " ") for text in shown.pictures)
    )
    for text in ("Pool default", "2 are right", "4 replicas, 2 more than now", "demand"):
        assert text in shown.said


def test_too_few_replicas_and_a_bound_that_holds_are_findings() -> None:
    found = findings(run_with(recorded(*GROWING)))
    assert "The scaling hint for pool default was 4 replicas while 2 were ready." in found
    reasons = (Reason(Code.MOST, "9 are needed, but the limit is 4"),)
    watch = recorded(hints(told(desired=4, ready=4, reasons=reasons)))
    assert (
        "A limit kept the scaling hint for pool default below the demand: "
        "9 are needed, but the limit is 4."
    ) in findings(run_with(watch))
