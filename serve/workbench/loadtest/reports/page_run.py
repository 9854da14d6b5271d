"""The client's part of a run's page: latency and rate over time, by percentile, by version.

What each outcome of a call means, in plain words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import isfinite

from serve.core.errors import ServegateError
from serve.pages.frame import section
from serve.workbench.loadtest.record import (
    BROKEN,
    MALFORMED,
    NEVER_STARTED,
    NOT_CONNECTED,
    TIMED_OUT,
    WRONG,
)
from serve.workbench.loadtest.reports import summary
from serve.workbench.loadtest.reports.drawing_bars import percentiles_svg, shares_up_to
from serve.workbench.loadtest.reports.drawing_frame import PlotLine, Scale
from serve.workbench.loadtest.reports.drawing_marks import marks_placed, moment
from serve.workbench.loadtest.reports.drawing_time import (
    Tick,
    latency_scale,
    latency_svg,
    rate_scale,
    rate_svg,
)
from serve.workbench.loadtest.reports.page_words import (
    count,
    figure,
    number,
    plural,
    seconds,
    share,
    table,
    tiles,
)
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import Instant, SummaryRow

# --- what each outcome of a call means, in plain words --------------------------------------------


_OWN = {
    NEVER_STARTED: "The run ended before a connection was free for the call.",
    TIMED_OUT: "No complete response arrived within the call's timeout.",
    NOT_CONNECTED: "The connection could not be established.",
    BROKEN: "The connection was closed before the response was complete.",
    WRONG: "The response was well-formed, but not the expected one.",
    MALFORMED: "The response could not be read.",
}
_STATUSES = {
    "http_400": "The server rejected the request as malformed.",
    "http_401": "The API key was missing or not valid.",
    "http_403": "The API key does not permit this call.",
    "http_404": "The model or version does not exist.",
    "http_408": "The server stopped waiting for the request.",
    "http_413": "The request body was too large.",
    "http_429": "Too many calls at once; the server refused the call without executing it.",
    "http_500": "Internal error of the server.",
    "http_502": "The gateway lost the connection to Triton during the call.",
    "http_503": "No server was available for the call.",
    "http_504": "The call's deadline passed.",
    "grpc_CANCELLED": "The call was cancelled.",
    "grpc_DEADLINE_EXCEEDED": "The call's deadline passed.",
    "grpc_INTERNAL": "Internal error of the server.",
    "grpc_INVALID_ARGUMENT": "The server rejected the request as malformed.",
    "grpc_NOT_FOUND": "The model or version does not exist.",
    "grpc_PERMISSION_DENIED": "The API key does not permit this call.",
    "grpc_RESOURCE_EXHAUSTED": "Too many calls at once, or the call was too large.",
    "grpc_UNAUTHENTICATED": "The API key was missing or not valid.",
    "grpc_UNAVAILABLE": "No server was available for the call, or the connection broke.",
    "grpc_UNIMPLEMENTED": "The server does not support this method.",
    "grpc_UNKNOWN": "The server failed without a reason.",
}


def meaning(outcome: str) -> str:
    """A sentence for an outcome, as HTML; empty where none is known.

    Where the gateway names a code, what `core/errors.py` says of it goes before the status.
    """
    status, _, code = outcome.partition(":")
    said = _codes().get(code) or _OWN.get(status) or _STATUSES.get(status, "")
    return escape(said)


def _codes() -> dict[str, str]:
    """The first sentence about each error of the gateway, by its code."""
    return {
        each.code: re.split(r"(?<=\.)\s", (each.__doc__ or "").strip())[0]
        for each in _below(ServegateError)
    }


def _below(kind: type[ServegateError]) -> Iterator[type[ServegateError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


# --- the client's part of a run's page ------------------------------------------------------------


_OPEN = "Latency is measured from the intended start of a call to its response."
_CLOSED = (
    "Closed loop: each user waits for a response before the next call. If the server "
    "stalls, no calls are made, and the latency does not show the stall."
)
_ENDED = (
    "The filled areas count calls by their intended start. The line counts responses "
    "when they arrived."
)
_GAP = (
    "The gap between the lines is the waiting time before the calls were sent. "
    "Generators that measure from the actual start hide it (coordinated omission), but "
    "users experience the upper line."
)
_COUNTED = (
    "Quantiles include complete responses, timeouts and calls that never started. Other "
    "failures, which can be quick, count only as errors."
)


@dataclass(frozen=True, slots=True)
class RunCourse:
    """A run over time, ready to be drawn beside another one."""

    seconds: float
    is_open: bool
    instants: tuple[Instant, ...]
    lines: tuple[PlotLine, PlotLine]
    ticks: tuple[Tick, ...]
    marks: tuple[tuple[float, str], ...]
    notes: tuple[tuple[float, float, str], ...]

    @classmethod
    def of(cls, run: LoadRun) -> RunCourse:
        """What the record says of it."""
        instants = summary.over_time(run)
        last = max((each.second + each.width for each in instants), default=0)
        marks = sorted(run.observed.marks, key=lambda mark: mark.at)
        return cls(
            seconds=max(run.seconds, last),
            is_open=run.is_open,
            instants=instants,
            lines=(
                PlotLine("p50", "p50", [(_middle(e), e.p50) for e in instants]),
                PlotLine("p99", "p99", [(_middle(e), e.p99) for e in instants]),
            ),
            ticks=tuple(_tick(each) for each in instants),
            marks=tuple((each.at, each.text) for each in marks),
            notes=tuple((e.second, e.second + e.width, _note(e)) for e in instants),
        )

    def figures(
        self, latency: Scale | None = None, rate: Scale | None = None, *, is_half: bool = False
    ) -> str:
        """Latency above the rate, and the marks below; the scales of another run, if given."""
        upper = latency_svg(
            self.lines,
            self.seconds,
            self.marks,
            scale=latency,
            notes=self.notes,
            is_half=is_half,
        )
        lower = rate_svg(
            self.ticks,
            self.seconds,
            self.marks,
            scale=rate,
            is_open=self.is_open,
            notes=self.notes,
        )
        above = figure("Latency", (("p50", "p50"), ("p99", "p99")), upper)
        above = above.replace("<figure>", '<figure class="joined">', 1)
        return above + figure("Calls per second", self._entries(), lower) + self._marks(is_half)

    def _entries(self) -> Iterator[tuple[str, str]]:
        if self.is_open:
            yield "intended", "intended"
        yield "right", "correct"
        if any(each.failed for each in self.ticks):
            yield "failed", "failed"
        yield "ended", "responses on arrival"

    def _marks(self, is_half: bool) -> str:
        """The marks by their numbers; on wide pages only where they do not fit in the picture."""
        if not self.marks:
            return ""
        is_told = not is_half and marks_placed(self.marks, self.seconds) is not None
        kind = "marks narrow" if is_told else "marks"
        told = (f"<li>{moment(at)}: {escape(text)}</li>" for at, text in self.marks)
        return f'<ol class="{kind}">{"".join(told)}</ol>'


def side_by_side(before: RunCourse, after: RunCourse) -> tuple[str, str]:
    """The figures of both, on the same scales."""
    longest = max(before.seconds, after.seconds)
    latency = latency_scale((*before.lines, *after.lines))
    rate = rate_scale((*before.ticks, *after.ticks))
    first, second = (
        replace(each, seconds=longest).figures(latency, rate, is_half=True)
        for each in (before, after)
    )
    return first, second


def run_tiles(run: LoadRun, row: SummaryRow) -> str:
    """What people ask first; `row` are all calls of the run."""
    asked = (
        {"Intended rate": f"{number(summary.intended_rate(run))}/s"}
        if run.is_open
        else {"Users": count((run.outline["closed"] or {}).get("users"))}
    )
    late = {"Late starts": share(summary.late_share(run))} if run.is_open else {}
    return tiles(
        asked
        | {
            "Correct responses": f"{number(row.rate)}/s",
            "Share correct": share(row.right / row.calls) if row.calls else "",
            "p50": seconds(row.latency.p50),
            "p99": seconds(row.latency.p99),
        }
        | late
    )


def over_time_part(course: RunCourse) -> str:
    """The two pictures over time."""
    if not course.ticks:
        return ""
    words = f"{_OPEN if course.is_open else _CLOSED} {_ENDED}"
    return section("Over time", f'{course.figures()}<p class="soft note">{words}</p>')


def percentiles_part(run: LoadRun) -> str:
    """Latencies by percentile, from the intended and from the real start."""
    whole = summary.latencies(run)
    points = shares_up_to(whole.count)
    if not points:
        return ""
    served = summary.services_of(run.record.windows.values())
    lines = [PlotLine("latency", "p99", list(zip(points, whole.quantiles(points), strict=True)))]
    entries = [("p99", "from the intended start")]
    if run.is_open and served.count:
        lines.append(
            PlotLine("service", "p50", list(zip(points, served.quantiles(points), strict=True)))
        )
        entries += [("p50", "from the actual start (service time)"), ("gap", "wait before sending")]
    else:
        entries = [("p99", "latency")]
    note = _GAP if len(lines) > 1 else _CLOSED
    title = "Latency by percentile"
    return section(title, figure("", entries, percentiles_svg(lines), note))


def rows_part(run: LoadRun, total: SummaryRow) -> str:
    """By protocol and version; a lane with a single version is told once."""
    found = summary.rows(run)
    if not found:
        return ""
    lanes = [each for each in found if not each.version]
    shown = [*([total] if len(lanes) > 1 else []), *_without_echoes(found)]
    heads = (
        "Protocol",
        "Version",
        "Calls",
        "Correct",
        "Correct/s",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "Max",
    )
    drawn = table(heads, (_cells(each, found) for each in shown), words=(0, 1))
    return section("By protocol and version", f'{drawn}<p class="soft note">{_COUNTED}</p>')


def errors_part(row: SummaryRow) -> str:
    """Calls without a right answer, by what became of them."""
    drawn = table(
        ("Outcome", "Calls", "Share", "Meaning"),
        (
            (f"<code>{escape(name)}</code>", count(many), share(many / row.calls), meaning(name))
            for name, many in row.errors.items()
        ),
        words=(0, 3),
    )
    return section("Errors", drawn)


def _without_echoes(found: Sequence[SummaryRow]) -> Iterator[SummaryRow]:
    """Lanes and their versions, without the only version of a lane."""
    for each in found:
        versions = _versions(each, found)
        if not each.version or len(versions) > 1:
            yield each


def _cells(row: SummaryRow, found: Sequence[SummaryRow]) -> tuple[str, ...]:
    versions = [each.version for each in _versions(row, found)]
    if not row.lane:
        name, version = "all", ""
    elif row.version:
        name, version = "", row.version
    else:
        same = row.lane == row.protocol
        name = escape(row.lane) + (
            "" if same else f' <span class="soft">{escape(row.protocol)}</span>'
        )
        version = versions[0] if len(versions) == 1 else "all" if versions else ""
    times = row.latency
    return (
        name or f'<span class="soft">{escape(row.lane)}</span>',
        escape(version),
        count(row.calls),
        share(row.right / row.calls) if row.calls else "",
        number(row.rate),
        *map(seconds, (times.p50, times.p90, times.p99, times.p999, times.largest)),
    )


def _versions(row: SummaryRow, found: Sequence[SummaryRow]) -> list[SummaryRow]:
    return [each for each in found if each.lane == row.lane and each.version]


def _middle(instant: Instant) -> float:
    return instant.second + instant.width / 2


def _tick(each: Instant) -> Tick:
    end = each.second + each.width
    return Tick(each.second, end, each.intended, each.ended, each.right, each.failed)


def _note(each: Instant) -> str:
    """What a pointer is told."""
    words = [f"second {each.second}" if each.width == 1 else f"from second {each.second}"]
    if isfinite(each.p50):
        words.append(f"p50 {seconds(each.p50)}, p99 {seconds(each.p99)}")
    words.append(f"{number(each.intended)}/s intended, {number(each.right)}/s correct")
    if each.failed:
        words.append(f"{number(each.failed)}/s failed")
    if each.waiting:
        words.append(f"{plural(each.waiting, 'call')} waiting")
    return "; ".join(words)
