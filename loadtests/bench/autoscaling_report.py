"""What a run of `loadtests.bench.autoscaling` comes to: a table, and two pictures over its time."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from serve.pages.charts import Axis, Chart, ChartSeries, draw

Page = Mapping[str, Any]
Points = tuple[tuple[float, float], ...]


def pictures(page: Page) -> dict[str, str]:
    """SVG files by name."""
    return {
        "autoscaling-loop.svg": draw(_replicas(page)),
        "autoscaling-load.svg": draw(_calls(page)),
    }


def table(page: Page) -> Iterator[str]:
    """Markdown."""
    hints = page["hints"]
    ready = _points(hints, "ready")
    used, static = area(ready), page["bounds"][1] * _length(ready)
    yield "| | |"
    yield "|---|---|"
    yield f"| calls | {page['calls']:,} |"
    yield f"| failed | {page['failed']}{_why(page['errors'])} |"
    yield f"| p50, p99 | {_ms(page['latency']['p50'])}, {_ms(page['latency']['p99'])} |"
    yield f"| replicas | {min(up for _, up in ready):g} to {max(up for _, up in ready):g} |"
    yield f"| changes of direction | {turns([up for _, up in ready])} |"
    share = f"{100 * used / static:.0f} %"
    yield f"| replica time, compared with {page['bounds'][1]} replicas all the time | {share} |"
    for name, seconds in delays(page):
        yield f"| {name} | {seconds:.0f} s |"


def delays(page: Page) -> Iterator[tuple[str, float]]:
    """From each wish for more replicas until they were ready."""
    wished: tuple[int, float] | None = None
    for one in page["hints"]:
        if one["desired"] > max(one["ready"], page["bounds"][0]) and (
            wished is None or wished[0] < one["desired"]
        ):
            wished = one["desired"], one["second"]
        elif wished and one["ready"] >= wished[0]:
            yield (
                f"from a hint of {wished[0]} replicas until they are ready",
                one["second"] - wished[1],
            )
            wished = None


def area(points: Points) -> float:
    """Under steps, each of which holds until the next."""
    return sum(height * (end - at) for (at, height), (end, _) in itertools.pairwise(points))


def turns(values: Sequence[float]) -> int:
    """How often a rise follows a fall, or a fall a rise."""
    steps = [after > before for before, after in itertools.pairwise(values) if after != before]
    return sum(one != other for one, other in itertools.pairwise(steps))


def _replicas(page: Page) -> Chart:
    hints = page["hints"]
    most = page["bounds"][1] + 0.5
    return Chart(
        "Autoscaling on one machine: the replicas follow the demand",
        Axis("seconds", least=0.0),
        Axis("replicas", least=0.0, most=most),
        (
            ChartSeries("demand (replicas busy all the time)", _points(hints, "demand"), "line"),
            ChartSeries("hint", _points(hints, "desired"), "steps"),
            ChartSeries("ready", _points(hints, "ready"), "steps"),
        ),
    )


def _calls(page: Page) -> Chart:
    load, capacity = page["load"], tuple(_capacity(page))
    right, failed = _points(load, "right"), _points(load, "failed")
    return Chart(
        "The same run: calls, and the capacity of the ready replicas",
        Axis("seconds", least=0.0),
        Axis("calls per second", least=0.0, most=1.1 * max(up for _, up in (*right, *capacity))),
        (
            ChartSeries("correct responses", right, "line"),
            ChartSeries("failed", failed, "line"),
            ChartSeries("measured capacity of the ready replicas", capacity, "steps"),
        ),
    )


def _capacity(page: Page) -> Iterator[tuple[float, float]]:
    for one in page["hints"]:
        known = [model["capacity"] for model in one["models"] if model["capacity"]]
        if known and one["second"] >= 0:
            yield one["second"], one["ready"] * known[0]


def _points(rows: Sequence[Page], name: str) -> Points:
    return tuple(
        (one["second"], float(one[name]))
        for one in rows
        if one[name] is not None and one["second"] >= 0
    )


def _length(points: Points) -> float:
    return points[-1][0] - points[0][0]


def _why(errors: Mapping[str, int]) -> str:
    return "".join(f"; {calls} {outcome}" for outcome, calls in errors.items())


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
