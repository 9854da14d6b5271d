"""The page of a tuning: one file, no script, everything from outside escaped.

The verdict comes first, then the change, the picture, what was predicted and what was measured.

The picture of a tuning: throughput against latency, as measured, as predicted, and the curve.

A point is right and low when it is good. The curve joins what nothing else beats in both: the
measured trials that no other trial exceeds in rate with a latency as low.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from serve.core.objectives import Objective
from serve.pages.frame import page, section
from serve.workbench.loadtest.reports.drawing_frame import (
    PlotLine,
    Scale,
    fitting,
    foot,
    line_path,
    linear,
    picture,
    side,
    stretched,
)
from serve.workbench.loadtest.reports.drawing_sweep import ratio_axis_svg, ratio_scale, ratio_svg
from serve.workbench.loadtest.reports.page_compared import versions_words, when_begun
from serve.workbench.loadtest.reports.page_words import (
    NONE,
    bare,
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
from serve.workbench.loadtest.reports.style import STYLE

# --- the picture of a tuning ----------------------------------------------------------------------


_CLEAR, _FOOT, _HEIGHT = 14.0, 24.0, 280.0
KINDS = {
    "predicted": "calm",
    "missed": "bad",
    "met": "",
    "present": "c2",
    "winner": "good",
}


@dataclass(frozen=True, slots=True)
class Dot:
    """Calls/s and seconds of latency; `kind` is one of `KINDS`, `text` is told to a pointer."""

    rate: float
    latency: float
    kind: str
    text: str


def front(dots: Sequence[Dot]) -> tuple[Dot, ...]:
    """Those that no other one beats: by ascending rate, and so by ascending latency."""
    found: list[Dot] = []
    for dot in sorted(dots, key=lambda dot: (-dot.rate, dot.latency)):
        if not found or dot.latency < found[-1].latency:
            found.append(dot)
    return tuple(reversed(found))


def pareto_svg(dots: Sequence[Dot], limit: float) -> str:
    """The picture; `limit` is the objective's, in seconds. Empty without anything measured."""
    measured = [dot for dot in dots if dot.kind != "predicted"]
    if not measured:
        return ""
    x = linear(max(dot.rate for dot in dots) * 1.02)
    y = fitting([*(dot.latency for dot in dots), limit])
    best = front(measured)
    line = PlotLine("Pareto curve", "p50", [(dot.rate, dot.latency) for dot in best])
    parts = (
        *side(y, _CLEAR, _HEIGHT, lambda tick: bare(seconds(tick))),
        *_limit(limit, y),
        stretched(_CLEAR, _HEIGHT, (line_path(line, x, y, _HEIGHT),)),
        *(part for dot in dots for part in _dot(dot, x, y)),
        *foot(x, _CLEAR + _HEIGHT, lambda tick: bare(number(tick))),
    )
    told = "; ".join(f"{number(dot.rate)}/s: {seconds(dot.latency)}" for dot in best)
    return picture(
        _CLEAR + _HEIGHT + _FOOT,
        f"latency by calls per second, Pareto front: {told}",
        parts,
        kind="inset",
    )


def _limit(limit: float, y: Scale) -> Iterator[str]:
    at = _CLEAR + (1 - y.at(limit)) * _HEIGHT
    yield f'<line class="one" x1="0" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>'
    yield f'<text class="end" x="100%" y="{at - 5:.1f}">objective</text>'


def _dot(dot: Dot, x: Scale, y: Scale) -> Iterator[str]:
    radius = 6 if dot.kind in ("present", "winner") else 3 if dot.kind == "predicted" else 4
    yield (
        f'<circle class="{KINDS[dot.kind]}" cx="{x.at(dot.rate) * 100:.2f}%" '
        f'cy="{_CLEAR + (1 - y.at(dot.latency)) * _HEIGHT:.1f}" r="{radius}">'
        f"<title>{escape(dot.text)}</title></circle>"
    )


# --- the page of a tuning -------------------------------------------------------------------------


Page = Mapping[str, Any]
_LEGEND = (
    ("dot good", "best configuration"),
    ("dot c2", "current configuration"),
    ("dot", "objective met"),
    ("dot bad", "missed"),
    ("dot c4", "predicted, at the objective's limit"),
)
_STYLE = "svg circle.c2 { fill: var(--third) }"
_MOST = 40  # rows of the table of setups


def render(report: Page) -> str:
    """The whole page of a report, see `report.py`."""
    return page(
        f"Batch tuning of {report['model']} version {report['version']}",
        (
            _lead(report),
            _verdict(report),
            _tiles(report),
            section("Change", _change(report)),
            section("Throughput and latency", _picture(report)),
            section("Compared with the current configuration", _compared(report)),
            section("Predicted and measured", _standings(report)),
            section("Measurements in order", _entries(report)),
            section("Notes", listed(report["notes"])),
            section("Command", f"<pre>{escape(report['command'])}</pre>"),
            section("Environment", _made_with(report)),
        ),
        style=STYLE + _STYLE,
    )


def _lead(report: Page) -> str:
    where = f"replica {report['replica']}" if report["replica"] else "a temporary Triton"
    told = (
        f"{report['objective']}, {report['load']}, rows per call: {report['rows']}; on "
        f"{where}. Started {when_begun(report['begun'])}."
    )
    return f'<p class="lead soft">{escape(told)}</p>'


def _verdict(report: Page) -> str:
    if report["best"] is None:
        kind, strong = " bad", "Not met."
    elif report["gain"]:
        kind, strong = "", "Improved."
    else:
        kind, strong = " calm", "No change needed."
    return f'<div class="verdict{kind}"><strong>{strong}</strong> {escape(report["verdict"])}</div>'


def _tiles(report: Page) -> str:
    best, found = report["best"] or {}, report["compared"]
    return tiles(
        {
            "Best": f"{number(best.get('rate'))}/s" if best else NONE,
            "p99 at that rate": seconds(best.get("p99")),
            "Rows per execution": number(best.get("rows_per_execution")),
            "Compared with current": f"× {number(found['ratio'])}" if found["rounds"] else NONE,
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
        f"<p>Change {escape(report['present']['text'])} to "
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
        "Horizontal: correct responses per second. Vertical: latency at the objective's "
        "quantile. The line connects the measured trials that no other trial beats in "
        "both.",
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
        "Current": f"{number(found['baseline'])}/s",
        "Best": f"{number(found['winner'])}/s",
        "Ratio": f"{number(ratio)} ({number(low)} to {number(high)})",
        "Rounds": count(found["rounds"]),
    }
    note = "Measured in alternation. The 95 % interval needs enough rounds."
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
        *("Configuration", "Predicted/s", "Met at/s", "Missed at/s"),
        *("p99 predicted", "p99 measured", "Trials", "Excluded because"),
    )
    left = len(shown) - _MOST
    rest = (
        f"<p class='soft'>{plural(left, 'configuration')} more in report.json.</p>"
        if left > 0
        else ""
    )
    return _service(report) + table(heads, rows, words=(0, 7)) + rest


def _service(report: Page) -> str:
    found = report["service"]
    if found is None:
        return ""
    return facts(
        {
            "Time per execution": f"{seconds(found['fixed'])} + "
            f"{seconds(found['per_row'])} per row",
            "Variation": number(found["scatter"]),
            "Overhead per call": seconds(report["overhead"]),
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
            + (" (the load generator was the bottleneck)" if one["doubt"] else ""),
        )
        for one in report["entries"]
    )
    heads = (
        *("Step", "Configuration", "Time", "Load", "Correct/s", "p50", "p99"),
        *("Rows per execution", "Objective"),
    )
    return table(heads, rows, words=(0, 1, 8))


def _made_with(report: Page) -> str:
    return facts({"Machine": report["machine"], "Versions": versions_words(report["versions"])})
