"""A try as a page shows it: bars, moved ranks, where the time went, and verdicts in a sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from serve.admin.web.sentences import decision_text
from serve.control.tries.records import Latency, OutputDifference, OutputLine, Top, Try, TrySide
from serve.tensors.output_values import in_words

_MOST_COLUMNS = 50
_MOST_LINES = 100
_FEW = 64  # values that need not be folded away
_PARTS = (
    ("gateway_and_network", "gateway and network"),
    ("queue", "queue"),
    ("compute_input", "compute input"),
    ("compute_infer", "compute infer"),
    ("compute_output", "compute output"),
)


@dataclass(frozen=True, slots=True)
class ScoreBar:
    """One of the highest scores. `share` is the bar's length in percent.

    `moved` says how its rank differs from A's, empty for none; `is_up` that it is higher there.
    """

    rank: int
    text: str
    index: int
    value: float | None
    share: float
    moved: str
    is_up: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a latency: seconds, and where it lies in percent of the whole."""

    name: str
    seconds: float
    start: float
    width: float
    shade: int


@dataclass(frozen=True, slots=True)
class ShownOutput:
    """One output of a side: `rows` of bars where it is scores, `table` its values by line.

    `words` are lines for each row, by the declared kind.
    """

    line: OutputLine
    rows: tuple[tuple[ScoreBar, ...], ...]
    words: tuple[tuple[str, ...], ...]
    table: tuple[tuple[str, ...], ...]
    is_cut: bool
    is_folded: bool


@dataclass(frozen=True, slots=True)
class SideView:
    """One side: why this version, its outputs, and where its time went."""

    side: TrySide
    letter: str
    why: str
    outputs: tuple[ShownOutput, ...]
    segments: tuple[Segment, ...]
    timing: str


@dataclass(frozen=True, slots=True)
class AgreementVerdict:
    """Whether the sides agree, and the sentence that says so."""

    is_good: bool
    text: str


def sides_of(one: Try) -> tuple[SideView, ...]:
    """Both sides; ranks of the second are told against the first."""
    first = {line.name: line for line in one.sides[0].outputs} if one.sides else {}
    return tuple(
        SideView(
            side=side,
            letter="AB"[place],
            why=decision_text(side.by, side.asked),
            outputs=tuple(
                _shown(line, first.get(line.name) if place else None) for line in side.outputs
            ),
            segments=tuple(_segments(side.latency)),
            timing=_timing(side.latency),
        )
        for place, side in enumerate(one.sides)
    )


def verdict_of(one: Try) -> AgreementVerdict | None:
    """What the difference says in one sentence; None where there is nothing to compare."""
    if one.difference is None:
        return None
    for name, found in one.difference.items():
        if found.refused:
            return AgreementVerdict(False, f"{name} cannot be compared: {found.refused}")
    for name, found in one.difference.items():
        if found.differing:
            is_classes = found.kind == "classes"
            told = f"{name} differs in {_rows_of(found.differing)}"
            return AgreementVerdict(False, _disagreement(one, name) if is_classes else told)
    if all(found.equal == 1 for found in one.difference.values()):
        return AgreementVerdict(True, "The outputs are identical")
    if any(found.agreement is None and found.equal != 1 for found in one.difference.values()):
        return AgreementVerdict(False, "The outputs differ")
    if all(found.kind == "classes" for found in one.difference.values()):
        return AgreementVerdict(True, "Same top class; the values differ")
    return AgreementVerdict(True, "The outputs agree; the values differ")


def _rows_of(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return f"row {shown}" if len(rows) == 1 else f"rows {shown}{', …' if len(rows) > 5 else ''}"


def _disagreement(one: Try, name: str) -> str:
    found = one.difference[name] if one.difference else OutputDifference()
    row = next(iter(found.differing), 0)
    told = []
    for side in one.sides:
        line = next((line for line in side.outputs if line.name == name), None)
        if line is None or len(line.top) <= row or not line.top[row]:
            return f"The top class of {name} differs"
        told.append(_name(line.top[row][0]))
    where = "" if len(line.top if line else ()) == 1 else f" in row {row}"
    return f"Different top class{where}: {told[0]} (A), {told[1]} (B)"


def _name(top: Top) -> str:
    return f"“{top.label}”" if top.label else f"class {top.index}"


def _shown(line: OutputLine, other: OutputLine | None) -> ShownOutput:
    table = tuple(_lines(line.values))
    return ShownOutput(
        line=line,
        rows=tuple(
            _bars(row, other.top[place] if other and place < len(other.top) else None)
            for place, row in enumerate(line.top)
        ),
        words=tuple(tuple(in_words(row)) for row in line.rows),
        table=tuple(row[:_MOST_COLUMNS] for row in table[:_MOST_LINES]),
        is_cut=line.truncated
        or len(table) > _MOST_LINES
        or any(len(row) > _MOST_COLUMNS for row in table),
        is_folded=bool(line.top or line.rows) or sum(map(len, table)) > _FEW,
    )


def _bars(row: Sequence[Top], other: Sequence[Top] | None) -> tuple[ScoreBar, ...]:
    values = [top.value for top in row if top.value is not None]
    least, most = min([0.0, *values]), max([0.0, *values])
    span = 1.0 if least == 0 and most <= 1 else most - least or 1.0
    ranks = {top.index: rank for rank, top in enumerate(other)} if other is not None else {}
    bars = []
    for rank, top in enumerate(row):
        moved, is_up = "", False
        if other is not None:
            before = ranks.get(top.index)
            if before is None:
                moved, is_up = f"not in A's top {len(other)}", True
            elif before != rank:
                is_up = rank < before
                moved = f"rank {before + 1} in A"
        share = 0.0 if top.value is None else 100 * (top.value - least) / span
        bars.append(
            ScoreBar(
                rank + 1,
                top.label or f"class {top.index}",
                top.index,
                top.value,
                share,
                moved,
                is_up,
            )
        )
    return tuple(bars)


def _lines(values: Any) -> Iterator[tuple[str, ...]]:
    """Nested lists as lines of cells: the innermost list is a line."""
    if not isinstance(values, list):
        yield (_cell(values),)
    elif not any(isinstance(each, list) for each in values):
        yield tuple(map(_cell, values))
    else:
        for each in values:
            yield from _lines(each)


def _cell(value: Any) -> str:
    if value is None:
        return "not finite"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _segments(latency: Latency | None) -> Iterator[Segment]:
    """The parts of the round trip; none unless they are of this very call."""
    if latency is None or not latency.exact or latency.round_trip <= 0:
        return
    start = 0.0
    for shade, (field, name) in enumerate(_PARTS):
        seconds = getattr(latency, field)
        if seconds is None:
            continue
        width = 100 * max(seconds, 0.0) / latency.round_trip
        yield Segment(name, seconds, start, min(width, 100 - start), shade)
        start = min(start + width, 100.0)


def _timing(latency: Latency | None) -> str:
    if latency is None:
        return ""
    if latency.exact:
        return "Exact: no other call to this version ran at the same time."
    if latency.calls:
        return (
            f"Queue and compute times are averages of {latency.calls} calls. "
            "The round-trip time is for this call only."
        )
    return "Only the round trip is known, because Triton returned no statistics."
