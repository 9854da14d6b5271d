"""The report of an evaluation as a page shows it: sentences, positions of marks, and shades.

It is made of the report that the admin API gives, and adds nothing to its numbers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.admin.web.page_templates import number_text, percent_text
from serve.admin.web.sentences import chance_text

MOST_SQUARES = 40  # classes of a confusion matrix that a page draws
_FEW = 12  # classes that are drawn at once
_SHADES = 8
_TICKS = 5
_SHARES = ("accuracy", "macro_f1", "ece", "failed", "agreement")
_BUCKETS = {
    "both-right": "both right",
    "only-a": "only A right",
    "only-b": "only B right",
    "both-wrong": "both wrong",
    "right": "right",
    "wrong": "wrong",
    "answered": "answered",
    "failed": "failed",
}
Page = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EstimateMark:
    """An estimate of one side: the share, and where it and its interval are, in percent."""

    letter: str
    value: float
    low: float
    high: float
    at: float
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class ReportAxis:
    """Marks on one axis; `ticks` are (position in percent, text)."""

    marks: tuple[EstimateMark, ...]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class ReportedGate:
    """A condition, and the number that it was held against, as a text."""

    text: str
    value: str
    passed: bool


@dataclass(frozen=True, slots=True)
class Square:
    """One cell of a confusion matrix. `shade` is of its colour: 0 for none, below 0 for fewer."""

    count: int
    shade: int
    is_right: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """A confusion matrix: a line per label, a cell per prediction."""

    key: str
    title: str
    lines: tuple[tuple[str, tuple[Square, ...]], ...]


@dataclass(frozen=True, slots=True)
class EvaluationPage:
    """What the templates need beside the numbers themselves.

    Of `labels` there are `too_many` to draw what is confused; with `is_long` that comes later.
    """

    numbers: Page
    gates: tuple[ReportedGate, ...]
    accuracy: ReportAxis | None
    drop: str
    chance: str
    buckets: Mapping[str, int]
    labels: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    too_many: bool
    is_long: bool


def report_of(numbers: Page | None) -> EvaluationPage | None:
    """A report to be drawn; None where there is none yet."""
    if numbers is None:
        return None
    compared = numbers["compared"] or {}
    pairs = compared.get("pairs")
    confusion = numbers.get("confusion")
    labels = tuple(confusion["labels"]) if confusion else ()
    return EvaluationPage(
        numbers=numbers,
        gates=tuple(_gate(one) for one in numbers["gates"]),
        accuracy=_accuracy(numbers),
        drop=drop_text(compared.get("drop")),
        chance=chance_text(pairs["only_a"], pairs["only_b"], compared["mcnemar"]) if pairs else "",
        buckets=numbers["buckets"],
        labels=labels,
        matrices=tuple(_matrices(confusion)) if len(labels) <= MOST_SQUARES else (),
        too_many=numbers.get("distinct", 0) > MOST_SQUARES,
        is_long=len(labels) > _FEW,
    )


def bucket_text(name: str) -> str:
    """How a bucket is called."""
    return _BUCKETS.get(name, name)


def drop_text(drop: Page | None) -> str:
    """The difference of two accuracies; `drop` is that of A less that of B."""
    if drop is None:
        return ""
    value, low, high = (100 * drop[key] for key in ("value", "low", "high"))
    if value == 0:
        return (
            "Both versions have the same accuracy "
            f"(95 % interval: ±{max(-low, high):.2g} percentage points)."
        )
    better = "A" if value > 0 else "B"
    if value < 0:
        value, low, high = -value, -high, -low
    return (
        f"{better} scores {value:.2f} percentage points higher "
        f"(95 % interval: {_signed(low)} to {_signed(high)})."
    )


def _signed(value: float) -> str:
    return f"{value:.2f}" if value >= 0 else f"−{-value:.2f}"


def _gate(one: Page) -> ReportedGate:
    return ReportedGate(one["text"], _measured(one["text"], one["value"]), one["passed"])


def _measured(text: str, value: float | None) -> str:
    """What a gate was held against, with the unit of its number."""
    if value is None:
        return "not measured"
    name = text.strip()
    if name.startswith(("p50", "p90", "p99")):
        return f"{number_text(value)} ms"
    if name.startswith("drop"):
        return f"{_signed(100 * value)} percentage points"
    return percent_text(value, 2) if name.startswith(_SHARES) else number_text(value)


def _accuracy(numbers: Page) -> ReportAxis | None:
    found = [
        (letter, side["accuracy"])
        for letter, side in (("A", numbers["a"]), ("B", numbers["b"]))
        if side is not None and side["accuracy"] is not None
    ]
    if not found:
        return None
    lowest = float(min(one["low"] for _, one in found))
    step = _step(1 - lowest)
    least = math.floor(lowest / step + 1e-9) * step
    span = max(1 - least, step)

    def place(value: float) -> float:
        return 100 * (value - least) / span

    marks = tuple(
        EstimateMark(
            letter,
            one["value"],
            one["low"],
            one["high"],
            place(one["value"]),
            place(one["low"]),
            place(one["high"]) - place(one["low"]),
        )
        for letter, one in found
    )
    count = round(span / step)
    ticks = tuple(
        (100 * tick / count, f"{100 * (least + tick * step):g} %") for tick in range(count + 1)
    )
    return ReportAxis(marks, ticks)


def _step(span: float) -> float:
    """The distance of ticks: 1, 2 or 5 of some power of ten, about five of them."""
    rough = max(span, 1e-6) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def _matrices(confusion: Page | None) -> Iterator[Matrix]:
    if confusion is None:
        return
    titles = (("a", "A"), ("b", "B"), ("difference", "B − A"))
    for key, title in titles:
        if confusion[key] is not None:
            yield Matrix(key, title, tuple(_lines(confusion["labels"], confusion[key], key)))


def _lines(
    labels: Sequence[str], counts: Sequence[Sequence[int]], key: str
) -> Iterator[tuple[str, tuple[Square, ...]]]:
    most = max((abs(count) for row in counts for count in row), default=0)
    for place, row in enumerate(counts):
        squares = tuple(
            Square(count, _shade(count, most), place == other) for other, count in enumerate(row)
        )
        yield labels[place], squares


def _shade(count: int, most: int) -> int:
    """Darker for more, and never none for something; the root shows the few mistakes."""
    if not count:
        return 0
    shade = max(1, round(_SHADES * math.sqrt(abs(count) / most)))
    return shade if count > 0 else -shade
