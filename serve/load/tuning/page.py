"""The page of a tuning: one file, no script, everything from outside escaped.

The verdict comes first, then the change, the picture, what was predicted and what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from serve.core.objectives import Objective
from serve.load.reporting.drawing_sweep import ratio_axis_svg, ratio_scale, ratio_svg
from serve.load.reporting.page_compared import versions_words, when_begun
from serve.load.reporting.page_words import (
    NONE,
    count,
    facts,
    figure,
    listed,
    number,
    plural,
    seconds,
    table,
    tiles,
)
from serve.load.reporting.style import STYLE
from serve.load.tuning.pareto import Dot, pareto_svg
from serve.pages.frame import page, section

Page = Mapping[str, Any]
_LEGEND = (
    ("dot good", "the winner"),
    ("dot c2", "the present configuration"),
    ("dot", "objective met"),
    ("dot bad", "missed"),
    ("dot c4", "predicted, at the objective's limit"),
)
_STYLE = "svg circle.c2 { fill: var(--third) }"
_MOST = 40  # rows of the table of setups


def render(report: Page) -> str:
    """The whole page of a report, see `report.py`."""
    return page(
        f"Batching of {report['model']} version {report['version']}, tuned",
        (
            _lead(report),
            _verdict(report),
            _tiles(report),
            section("The change", _change(report)),
            section("Throughput against latency", _picture(report)),
            section("Against the present configuration", _compared(report)),
            section("Predicted and measured", _standings(report)),
            section("What was measured, in this order", _entries(report)),
            section("Notes", listed(report["notes"])),
            section("The same again", f"<pre>{escape(report['command'])}</pre>"),
            section("Made with", _made_with(report)),
        ),
        style=STYLE + _STYLE,
    )


def _lead(report: Page) -> str:
    where = f"replica {report['replica']}" if report["replica"] else "a Triton of its own"
    told = (
        f"{report['objective']}, {report['load']}, rows of a call: {report['rows']}; on {where}. "
        f"Begun {when_begun(report['begun'])}."
    )
    return f'<p class="lead soft">{escape(told)}</p>'


def _verdict(report: Page) -> str:
    if report["best"] is None:
        kind, strong = " bad", "Not met."
    elif report["gain"]:
        kind, strong = "", "A gain."
    else:
        kind, strong = " calm", "Nothing to change."
    return f'<div class="verdict{kind}"><strong>{strong}</strong> {escape(report["verdict"])}</div>'


def _tiles(report: Page) -> str:
    best, found = report["best"] or {}, report["compared"]
    return tiles(
        {
            "Best": f"{number(best.get('rate'))}/s" if best else NONE,
            "p99 there": seconds(best.get("p99")),
            "Rows an execution": number(best.get("rows_per_execution")),
            "Against the present": f"× {number(found['ratio'])}" if found["rounds"] else NONE,
            "Measurements": count(report["measurements"]),
            "Time": seconds(report["seconds"]),
        }
    )


def _change(report: Page) -> str:
    change = report["change"]
    if not report["gain"]:
        return ""
    lines = "\n".join(change["config.pbtxt"])
    return (
        f"<p>{escape(report['present']['text'])} becomes "
        f"<strong>{escape(report['best']['setup']['text'])}</strong>:</p>"
        f"<pre>{escape(change['command'])}</pre><p>or in config.pbtxt:</p>"
        f"<pre>{escape(lines)}</pre>"
    )


def _picture(report: Page) -> str:
    limit = Objective.parse(report["objective"]).limit
    return figure(
        "",
        _LEGEND,
        pareto_svg(tuple(_dots(report)), limit),
        "Across: right answers per second. Up: latency at the objective's quantile. "
        "The line joins the measured trials that no other trial beats in both.",
    )


def _dots(report: Page) -> Iterator[Dot]:
    best = (report["best"] or {}).get("setup", {}).get("text")
    for one in report["standings"]:
        if one["predicted"] and one["predicted_p99"]:
            text = f"predicted: {one['setup']['text']}, {number(one['predicted'])}/s"
            yield Dot(one["predicted"], one["predicted_p99"], "predicted", text)
    for one in report["entries"]:
        if one["passed"] is None or not one["achieved"] or not one["latency"]:
            continue
        setup = one["setup"]["text"]
        kind = "met" if one["passed"] else "missed"
        if one["passed"] and setup in (best, report["present"]["text"]):
            kind = "winner" if setup == best else "present"
        told = f"{setup}: {number(one['achieved'])}/s of {number(one['rate'])}/s, "
        yield Dot(one["achieved"], one["latency"], kind, told + seconds(one["latency"]))


def _compared(report: Page) -> str:
    found = report["compared"]
    if not found["rounds"]:
        return ""
    ratio, low, high = (found[name] or float("nan") for name in ("ratio", "low", "high"))
    kind = "good" if report["gain"] else "calm"
    scale = ratio_scale((ratio, low, high))
    named = {
        "Present": f"{number(found['baseline'])}/s",
        "Winner": f"{number(found['winner'])}/s",
        "Ratio": f"{number(ratio)} ({number(low)} to {number(high)})",
        "Rounds": count(found["rounds"]),
    }
    note = "Measured in turns; with the 95 % interval where there were enough rounds."
    drawn = ratio_svg(ratio, low, high, scale, kind) + ratio_axis_svg(scale)
    return facts(named) + figure("", (), drawn, note)


def _standings(report: Page) -> str:
    shown = [one for one in report["standings"] if one["trials"]]
    shown += [one for one in report["standings"] if not one["trials"]]
    rows = (
        (
            escape(one["setup"]["text"]),
            number(one["predicted"]),
            number(one["passed"] or None),
            number(one["failed"]),
            seconds(one["predicted_p99"]),
            seconds(one["p99"] or None),
            count(one["trials"]),
            escape(one["why_out"]),
        )
        for one in shown[:_MOST]
    )
    heads = (
        *("Setup", "Predicted, /s", "Met at, /s", "Missed at, /s"),
        *("p99 predicted", "p99 measured", "Trials", "Given up"),
    )
    left = len(shown) - _MOST
    rest = f"<p class='soft'>{plural(left, 'setup')} more in report.json.</p>" if left > 0 else ""
    return _service(report) + table(heads, rows, words=(0, 7)) + rest


def _service(report: Page) -> str:
    found = report["service"]
    if found is None:
        return ""
    return facts(
        {
            "An execution": f"{seconds(found['fixed'])} + {seconds(found['per_row'])} a row",
            "Scatter": number(found["scatter"]),
            "Besides, per call": seconds(report["overhead"]),
        }
    )


def _entries(report: Page) -> str:
    words = {True: "met", False: "missed", None: ""}
    rows = (
        (
            escape(one["step"]),
            escape(one["setup"]["text"]),
            seconds(one["at"]),
            f"{number(one['rate'])}/s" if one["rate"] else plural(one["callers"], "caller"),
            number(one["achieved"]),
            seconds(one["p50"]),
            seconds(one["p99"]),
            number(one["rows_per_execution"]),
            escape(one["why"] or words[one["passed"]])
            + (" (the generator was the limit)" if one["doubt"] else ""),
        )
        for one in report["entries"]
    )
    heads = (
        *("Step", "Setup", "After", "Load", "Right, /s", "p50", "p99"),
        *("Rows an execution", "Objective"),
    )
    return table(heads, rows, words=(0, 1, 8))


def _made_with(report: Page) -> str:
    return facts({"Generator": report["machine"], "Versions": versions_words(report["versions"])})
