"""An answer, shown: each output by its declared kind, else as a preview of its values."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve.cli.callers import Answer
from serve.tensors.comparison import Score
from serve.tensors.datatypes import Array, to_json
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import Declared
from serve.tensors.output_values import described, in_words, score_json, scored_rows

_MAX_ROWS = 8  # of a batch, for people
_MAX_ELEMENTS = 8  # of a preview
_BAR = 24  # characters
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class OutputReading:
    """How outputs are to be read: how many scores; label texts, metadata and kinds by output."""

    top_k: int
    labels: Mapping[str, Sequence[str]]
    specs: Mapping[str, TensorSpec]
    declared: Declared = field(default_factory=dict)

    def rows(
        self, name: str, outputs: Mapping[str, Array], most: int | None = None
    ) -> list[dict[str, Any]] | None:
        """The first rows by the declared kind; None without a declaration."""
        declared = self.declared.get(name)
        if declared is None:
            return None
        labels, spec = self.labels.get(name, ()), self.specs.get(name)
        return described(name, outputs, declared, spec, labels=labels, k=self.top_k, most=most)

    def scores(self, name: str, array: Array) -> list[list[Score]] | None:
        """The highest classes of each row; None for an output of another kind."""
        declared = self.declared.get(name)
        if declared is None or declared.kind != "classes":
            return None
        labels, spec = self.labels.get(name, ()), self.specs.get(name)
        return scored_rows(array, declared, spec, labels=labels, k=self.top_k)


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One line for people; `bar` is drawn on a terminal only."""

    text: str
    bar: str = ""


@dataclass(frozen=True, slots=True)
class CallTally:
    """Several equal calls: how many each version answered, and the times in milliseconds."""

    versions: Mapping[str, int]
    milliseconds: Sequence[float]

    @classmethod
    def of(cls, calls: Sequence[tuple[str, float]]) -> "CallTally":
        """Count them; each is a version and its milliseconds."""
        counts = Counter(version for version, _ in calls)
        return cls(dict(sorted(counts.items())), sorted(time for _, time in calls))

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "calls": len(self.milliseconds),
            "versions": dict(self.versions),
            "p50_milliseconds": round(self.at(0.5), 3),
            "max_milliseconds": round(self.milliseconds[-1], 3),
        }

    def line(self) -> str:
        """For people."""
        shares = ", ".join(f"version {name}: {count}" for name, count in self.versions.items())
        return (
            f"{len(self.milliseconds)} calls in sequence; {shares}; "
            f"median {self.at(0.5):.1f} ms, slowest {self.milliseconds[-1]:.1f} ms"
        )

    def at(self, share: float) -> float:
        """The time that this share of the calls did not exceed (nearest rank)."""
        return self.milliseconds[max(math.ceil(share * len(self.milliseconds)) - 1, 0)]


def document(model: str, answer: Answer, reading: OutputReading) -> dict[str, Any]:
    """The answer for programs. `top_k` has one list per row, also where there is one row."""
    outputs = {}
    for name, array in answer.reply.outputs.items():
        scores = reading.scores(name, array)
        shown: dict[str, Any] = {
            "shape": list(array.shape),
            "datatype": answer.reply.datatypes[name],
        }
        if name in reading.declared:
            shown["kind"] = reading.declared[name].kind
        if scores is None:
            shown["data"] = _finite(to_json(array))
            if (rows := reading.rows(name, answer.reply.outputs)) is not None:
                shown["rows"] = rows
        else:
            shown["top_k"] = [[score_json(score) for score in row] for row in scores]
        outputs[name] = shown
    return {
        "model": model,
        "version": int(answer.version) if answer.version.isdigit() else answer.version or None,
        "by": answer.by or None,
        "generation": answer.generation,
        "milliseconds": round(answer.milliseconds, 3),
        "outputs": outputs,
    }


def lines(
    model: str, answer: Answer, reading: OutputReading, *, blocks: bool
) -> Iterator[AnswerLine]:
    """The answer for people. `blocks`: bars of block characters, for terminals that have them."""
    decided = f" (by {answer.by}, generation {answer.generation})" if answer.by else ""
    version = f" version {answer.version}" if answer.version else ""
    yield AnswerLine(f"{model}{version}{decided}, {answer.milliseconds:.1f} ms")
    for name, array in answer.reply.outputs.items():
        yield AnswerLine(f"{name}  {answer.reply.datatypes[name]} {list(array.shape)}")
        scores = reading.scores(name, array)
        if scores is None:
            rows = reading.rows(name, answer.reply.outputs, _MAX_ROWS)
            texts = [_preview(array)] if rows is None else _texts(rows)
            yield from (AnswerLine(f"  {text}") for text in texts)
            continue
        for number, row in enumerate(scores[:_MAX_ROWS]):
            if len(scores) > 1:
                yield AnswerLine(f"  row {number}")
            yield from _table(row, blocks=blocks)
        if len(scores) > _MAX_ROWS:
            yield AnswerLine(f"  {len(scores) - _MAX_ROWS} more rows; use --json to see all")


def _texts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if len(rows) > 1:
            yield f"row {number}"
        yield from in_words(row)


def _table(row: Sequence[Score], *, blocks: bool) -> Iterator[AnswerLine]:
    """The scores under a header; shares of 1 with four digits, other scores with four figures."""
    is_share = all(0 <= score.value <= 1 for score in row)
    full = 1.0 if is_share else max((score.value for score in row), default=0.0)
    cells = [("index", "label", "score")]
    for score in row:
        value = f"{score.value:.4f}" if is_share else f"{score.value:.4g}"
        cells.append((str(score.index), score.label, value))
    bars = ["", *(bar(score.value / full if full > 0 else 0.0, blocks=blocks) for score in row)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    has_labels = any(score.label for score in row)
    for (index, label, value), drawn in zip(cells, bars, strict=True):
        middle = f"{label:<{widths[1]}}  " if has_labels else ""
        yield AnswerLine(f"  {index:>{widths[0]}}  {middle}{value:>{widths[2]}}", drawn)


def bar(share: float, *, blocks: bool) -> str:
    """A bar for a share from 0 to 1, in eighths of a character where there are block characters."""
    if not share > 0 or math.isinf(share):  # nor for NaN
        return ""
    eighths = round(min(share, 1.0) * _BAR * 8)
    if not blocks:
        return "#" * round(eighths / 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _preview(array: Array) -> str:
    elements = to_json(array.ravel()[:_MAX_ELEMENTS])
    words = [f"{each:.6g}" if isinstance(each, float) else _quoted(each) for each in elements]
    rest = f", … ({array.size} elements)" if array.size > _MAX_ELEMENTS else ""
    return (", ".join(words) or "no elements") + rest


def _quoted(element: object) -> str:
    text = repr(element)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _finite(value: Any) -> Any:
    """JSON has neither NaN nor infinities: null stands for them."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
