"""The generator's part of a run's page: how it did itself, and what it was told to do."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import nan
from typing import Any

from serve.pages.frame import section
from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.plan import LaneProtocol, RateShape
from serve.workbench.loadtest.reports import summary
from serve.workbench.loadtest.reports.drawing_frame import PlotLine
from serve.workbench.loadtest.reports.drawing_time import readings_svg
from serve.workbench.loadtest.reports.page_run import RunCourse
from serve.workbench.loadtest.reports.page_words import (
    bare,
    count,
    facts,
    figure,
    number,
    plural,
    seconds,
    share,
    size,
    table,
)
from serve.workbench.loadtest.reports.report import LoadRun

_PROTOCOLS = {
    LaneProtocol.HTTP_JSON: "HTTP, JSON",
    LaneProtocol.HTTP_BINARY: "HTTP, binary",
    LaneProtocol.GRPC: "gRPC",
    LaneProtocol.GRPC_STREAM: "gRPC, streaming",
    LaneProtocol.TFSERVING: "TensorFlow Serving REST",
}


def generator_part(run: LoadRun, course: RunCourse) -> str:
    """Whether the generator kept up."""
    windows = run.record.windows
    if not windows:
        return ""
    generators = [each.generator for each in windows.values()]
    lag = Histogram.merged(each.lag for each in generators)
    busiest = [each.busiest for each in generators]
    never = summary.never_started(run)
    p50, p99, largest = lag.quantiles((0.5, 0.99, 1.0))
    told = {
        "Workers": count(run.workers),
        "Start delay, p50": seconds(p50) if lag.count else "",
        "Start delay, p99": seconds(p99) if lag.count else "",
        "Start delay, max": seconds(largest) if lag.count else "",
        "Started 10 ms late or more": share(summary.late_share(run)) if run.is_open else "",
        "Never started": count(never) if run.is_open else "",
        "CPU of the busiest worker": f"{share(sum(busiest) / len(busiest))} of a core, "
        f"max. {share(max(busiest))}",
        "CPU time, total": seconds(sum(each.cpu for each in generators)),
        "In flight, max (sampled)": count(max(each.in_flight for each in generators)),
        "Waiting for a connection, max": count(max(each.waiting for each in generators)),
    }
    return section("Load generator", facts(told) + _courses(course))


def _courses(course: RunCourse) -> str:
    """Small pictures of lag, CPU and calls in flight over time."""
    instants = course.instants
    middles = [each.second + each.width / 2 for each in instants]
    kinds = {
        "Start delay, p99": (seconds, [each.lag_p99 for each in instants]),
        "CPU of the busiest worker": (share, [each.busiest for each in instants]),
        "In flight": (number, [float(each.in_flight) for each in instants]),
    }
    shown = ""
    for name, (told, values) in kinds.items():
        line = PlotLine(name, "c0", list(zip(middles, values, strict=True)))
        spoken = f"{name} over time, at most {told(max(values, default=nan))}"
        svg = readings_svg((line,), course.seconds, course.marks, told, spoken=spoken)
        shown += figure(name, (), svg)
    return f'<div class="many">{shown}</div>' if shown else ""


def plan_part(run: LoadRun) -> str:
    """What was to be done: the lanes, and when calls were to start."""
    outline = run.outline
    lanes = outline["lanes"]
    has_weights = len(lanes) > 1
    heads = ["Name", "Protocol", "Target"]
    heads += ["Request bodies", "Largest body", "Rows", "Response check"]
    if has_weights:
        heads.append("Weight")
    drawn = table(heads, (_lane(each, has_weights) for each in lanes), words=(0, 1, 2, 6))
    return section("Test plan", drawn + facts(_plan_facts(outline)))


def _lane(lane: Mapping[str, Any], has_weight: bool) -> tuple[str, ...]:
    known = {str(each): words for each, words in _PROTOCOLS.items()}
    checked = "status and outputs" if lane.get("checked") else "status only"
    if lane.get("sequence_length"):
        checked += f", sequences of {count(lane['sequence_length'])}"
    weight = (number(float(lane["weight"])),) if has_weight else ()
    return (
        escape(str(lane["name"])),
        escape(known.get(str(lane["protocol"]), str(lane["protocol"]))),
        f'<code class="to">{escape(str(lane["address"]))} {escape(str(lane["path"]))}</code>',
        count(lane.get("payloads")),
        size(lane.get("bytes")),
        count(lane.get("rows")),
        escape(checked),
        *weight,
    )


def _plan_facts(outline: Mapping[str, Any]) -> dict[str, str]:
    told = {
        "Arrivals": arrivals_words(outline["arrivals"]) if outline["arrivals"] else "",
        "Closed loop": _closed_words(outline["closed"]) if outline["closed"] else "",
        "Duration": bare(seconds(outline["seconds"])),
        "Warm-up": bare(seconds(outline["warm_up"])) if outline.get("warm_up") else "",
        "Timeout per call": bare(seconds(outline.get("timeout"))),
        "In flight per worker, max": count(outline.get("most")),
        "Seed": str(outline.get("seed", "")),
    }
    labels = outline.get("labels", {})
    return told | {str(name).capitalize(): str(text) for name, text in labels.items()}


def arrivals_words(arrivals: Mapping[str, Any]) -> str:
    """`200/s, Poisson`; `from 10/s to 200/s, even`."""
    rate = f"{bare(number(arrivals['rate']))}/s"
    levels = [bare(number(each)) for each in arrivals["levels"]]
    at, lasting = (bare(seconds(arrivals.get(name, nan))) for name in ("at", "lasting"))
    words = {
        RateShape.CONSTANT: rate,
        RateShape.RAMP: f"from {levels[0]}/s to {levels[-1]}/s" if levels else rate,
        RateShape.STEP: f"steps of {', '.join(levels)}/s",
        RateShape.SPIKE: f"{rate}, and {''.join(levels[:1])} times that for {lasting} from {at} on",
        RateShape.DIURNAL: f"{rate} on average, peak {''.join(levels[:1])} times the trough, "
        f"every {lasting}",
        RateShape.TRACE: "a trace",
    }
    shape = str(arrivals["shape"])
    told = (
        words.get(RateShape(shape), shape) if shape in [str(each) for each in RateShape] else shape
    )
    spacing = "" if shape == RateShape.TRACE else f", {str(arrivals['spacing']).capitalize()}"
    return told + spacing.replace("Even", "evenly spaced")


def _closed_words(closed: Mapping[str, Any]) -> str:
    words = [plural(int(closed["users"]), "user")]
    if closed.get("think"):
        words.append(f"{bare(seconds(closed['think']))} think time")
    if closed.get("rate"):
        words.append(f"paced to {bare(number(closed['rate']))}/s")
    return ", ".join(words)
