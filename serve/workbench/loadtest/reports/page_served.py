"""The other side's part of a run's page: where the time went, Triton, readings, routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isfinite, nan, sqrt
from typing import Any

from serve.pages.frame import section
from serve.workbench.loadtest.histogram import Histogram
from serve.workbench.loadtest.observations.hints import GROUP
from serve.workbench.loadtest.observed import GatewayTimes, ObservedSeries, TritonTimes
from serve.workbench.loadtest.reports import summary
from serve.workbench.loadtest.reports.drawing_bars import batches_svg, parts_svg
from serve.workbench.loadtest.reports.drawing_frame import PlotLine
from serve.workbench.loadtest.reports.drawing_time import readings_svg, shares_svg
from serve.workbench.loadtest.reports.page_run import RunCourse
from serve.workbench.loadtest.reports.page_words import (
    bare,
    count,
    facts,
    figure,
    listed,
    long_facts,
    number,
    reading,
    seconds,
    share,
    size,
    table,
)
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import SummaryRow

_KINDS = ("c0", "c1", "c2", "c3", "c4")
_MOST_STEPS = 60
_GROUPS = ("replica", "gpu", "gateway", "control")
_WHERE = (
    "Averages over all calls, from the load generator, the gateway and Triton. They are "
    "measured at different points, so the parts may not add up exactly."
)


_NAMES = {"server": "Server", "config": "Configuration", "replicas": "Replicas"}


def time_part(run: LoadRun, total: SummaryRow) -> str:
    """Where the time of a mean call goes; what Triton counted; batches; what the gateway used."""
    triton = run.observed.triton
    parts = [each for each in _parts(run, total) if isfinite(each[1]) and each[1] > 0]
    bar = ""
    if triton or run.observed.gateway:
        entries = [(kind, f"{name} {seconds(long)}") for name, long, kind in parts]
        bar = figure("", entries, parts_svg(parts), _WHERE)
    sizes: Counter[int] = Counter()
    for each in triton:
        sizes.update(each.batches)
    batches = figure("Executions in Triton by batch size", (), batches_svg(sizes))
    return section("Time per call", bar + _triton(triton) + batches + _gateway(run))


def _parts(run: LoadRun, total: SummaryRow) -> Iterator[tuple[str, float, str]]:
    """(name, seconds, style) of the stretches of a call, in their order."""
    triton, gateway = run.observed.triton, run.observed.gateway
    lag = Histogram.merged(each.generator.lag for each in run.record.windows.values())
    whole = total.service.mean
    requests = sum(each.requests for each in triton)

    def mean(name: str) -> float:
        times = sum(getattr(each, name) * each.requests for each in triton)
        return times / requests if requests else 0.0

    inside = sum(map(mean, ("queue", "input", "infer", "output")))
    behind = gateway.whole if gateway else inside
    yield "late start", lag.mean, "part-lag"
    yield (
        "client and network" if gateway else "client, network, front end",
        (whole - behind),
        "part-between",
    )
    if gateway:
        added = gateway.whole - inside if gateway.added is None else gateway.added
        yield "gateway adds" if requests else "gateway and Triton", added, "part-gateway"
    for name, words in (("queue", "queue"), ("input", "input"), ("infer", "infer")):
        yield f"Triton: {words}", mean(name), f"part-{name}"
    yield "Triton: output", mean("output"), "part-output"


def _triton(times: Sequence[TritonTimes]) -> str:
    """What Triton counted, by version."""
    has_failures = any(each.failures for each in times)
    heads = ["Version", "Requests", "Executions", "Mean batch", "Queue", "Input", "Infer", "Output"]
    if has_failures:
        heads.insert(2, "Failed")
    rows = []
    for each in times:
        row = [
            escape(each.version),
            count(each.requests),
            count(each.executions),
            number(each.rows / each.executions if each.executions else nan),
            *map(seconds, (each.queue, each.input, each.infer, each.output)),
        ]
        if has_failures:
            row.insert(2, count(each.failures))
        rows.append(row)
    drawn = table(heads, rows)
    return f"<figure><h3>Triton by version</h3>{drawn}</figure>" if drawn else ""


def _gateway(run: LoadRun) -> str:
    gateway = run.observed.gateway
    if gateway is None:
        return ""
    return f"<figure><h3>Gateway</h3>{facts(_gateway_facts(gateway))}</figure>"


def _gateway_facts(gateway: GatewayTimes) -> dict[str, str]:
    each = gateway.cpu / gateway.calls if gateway.calls else nan
    errors = ", ".join(f"{name} {count(many)}" for name, many in gateway.errors.items() if many)
    return {
        "Calls (without streams)": count(gateway.calls),
        "Time per call": seconds(gateway.whole),
        "Added by the gateway": seconds(gateway.added) if gateway.added is not None else "",
        "Errors by code": errors,
        "Retries": count(gateway.retries) if gateway.retries else "",
        "CPU per call": seconds(each) if isfinite(each) and gateway.cpu else "",
        "Memory (RSS), max": size(gateway.resident) if gateway.resident else "",
    }


# --- readings ------------------------------------------------------------------------------------


def readings_part(run: LoadRun, course: RunCourse) -> str:
    """Small pictures of all that was read over time, one for each kind of reading."""
    kinds: dict[tuple[str, str, str], list[ObservedSeries]] = {}
    for each in run.observed.series:
        if each.group == GROUP:
            continue  # it has a part of its own
        kinds.setdefault((each.group, each.name, each.unit), []).append(each)
    order = {group: place for place, group in enumerate(_GROUPS)}
    shown = "".join(
        _readings(course, group, name, unit, many)
        for (group, name, unit), many in sorted(
            kinds.items(), key=lambda item: order.get(item[0][0], len(order))
        )
    )
    return section("Metrics over time", f'<div class="many">{shown}</div>' if shown else "")


def _readings(
    course: RunCourse, group: str, name: str, unit: str, many: Sequence[ObservedSeries]
) -> str:
    lines, entries = [], []
    for place, each in enumerate(many):
        kind = _KINDS[min(place, len(_KINDS) - 1)]
        points = [
            (at, nan if value is None else value)
            for at, value in zip(each.seconds, each.values, strict=True)
            if 0 <= at <= course.seconds
        ]
        known = [value for _, value in points if isfinite(value)]
        if known:
            lines.append(PlotLine(each.of, kind, points))
            entries.append((kind, f"{_short(each.of)}, max. {bare(reading(max(known), unit))}"))
    if unit == "1" and all(value == 1 for line in lines for _, value in line.points):
        return ""  # replicas that were up all the time
    svg = readings_svg(
        lines,
        course.seconds,
        course.marks,
        lambda value: reading(value, unit),
        spoken=f"{name} of {group} over time: {'; '.join(text for _, text in entries)}",
    )
    title = name if group in ("replica", "") else f"{group}: {name}"
    title = f"GPU: {name}" if group == "gpu" else title
    return figure(title[:1].upper() + title[1:], entries, svg)


def _short(name: str) -> str:
    """The beginning of a long name: a GPU's identity has 40 letters."""
    return name if len(name) <= 20 else f"{name[:14]}…"


# --- routes --------------------------------------------------------------------------------------


def routes_part(run: LoadRun, course: RunCourse) -> str:
    """Which version answered and why; over time, where that has changed."""
    found = summary.routes(run)
    if not any(each.by for each in found) and len({each.version for each in found}) < 2:
        return ""
    drawn = table(
        ("Version", "Selected by", "Calls", "Share"),
        (
            (
                escape(each.version),
                escape(each.by) or "not reported (streams)",
                count(each.calls),
                share(each.share),
            )
            for each in found
        ),
        words=(0, 1),
    )
    return section("Route decisions", drawn + _shares(run, course))


def _shares(run: LoadRun, course: RunCourse) -> str:
    """A picture of the versions over time; nothing where their shares stay as they are."""
    counts = _versions_over_time(run)
    totals: Counter[str] = Counter()
    for each in counts:
        totals.update(each)
    if len(totals) < 2 or not _has_moved(counts):
        return ""
    names = [name for name, _ in totals.most_common()]
    shown = sorted(names[: len(_KINDS)], key=names.index)
    kinds = [(name, _KINDS[place]) for place, name in enumerate(shown)]
    step = run.seconds / len(counts)
    spans = [
        (place * step, (place + 1) * step, [each[name] for name in shown])
        for place, each in enumerate(counts)
    ]
    svg = shares_svg(kinds, spans, course.seconds, course.marks)
    entries = [(f"{kind} dot", f"version {name}") for name, kind in kinds]
    return figure("Share of the responses by version over time", entries, svg)


def _versions_over_time(run: LoadRun) -> list[Counter[str]]:
    """Answers by version, in equal steps of the run."""
    steps = max(1, min(_MOST_STEPS, int(run.seconds)))
    counts: list[Counter[str]] = [Counter() for _ in range(steps)]
    for second, key, cell in run.record.cells():
        if key.version and second < run.seconds:
            counts[int(second * steps / max(run.seconds, 1))][key.version] += cell.calls
    return counts


def _has_moved(counts: Sequence[Counter[str]]) -> bool:
    """Whether a version's share differs between the thirds of a run, beyond chance."""
    third = max(1, len(counts) // 3)
    parts = [
        sum(counts[begin : begin + third], Counter()) for begin in range(0, len(counts), third)
    ]
    parts = [each for each in parts if each.total()]
    for name in sum(parts, Counter()):
        shares = [each[name] / each.total() for each in parts]
        middle = sum(shares) / len(shares)
        least = min(each.total() for each in parts)
        if max(shares) - min(shares) > max(0.02, 5 * sqrt(middle * (1 - middle) / least)):
            return True
    return False


def problems_part(run: LoadRun) -> str:
    """What could not be asked, and why."""
    return section("Not observed", listed(run.observed.problems))


def served_by(run: LoadRun) -> str:
    """Server, configuration and replicas, as they told them, without what is off or empty."""
    told = {
        _NAMES.get(str(name), str(name)): _spoken(value)
        for name, value in run.observed.facts.items()
    }
    return section("Server under test", long_facts(told))


def _spoken(value: Any) -> str:
    """`preferred_batch_size 64, max_queue_delay_microseconds 100`, flat."""
    if isinstance(value, Mapping):
        pairs = ((str(name), _spoken(each)) for name, each in value.items())
        return ", ".join(f"{name} {text}" for name, text in pairs if text)
    if isinstance(value, list | tuple):
        return "; ".join(filter(None, map(_spoken, value)))
    return "" if value in (None, False, 0, "", "0") else str(value)
