"""Results for other programs: rows as pages, as CSV and as JSON."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from serve.core.errors import Invalid
from serve.workbench.evaluation.results import Bucket, OutputKind, RowResult, SideOutput

_SIDE = ("predicted", "score", "confidence", "milliseconds", "error")
_RISKY = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows somebody wants to see; what is empty does not matter.

    `slices` are pairs of a name and a value; `predicted` is by any side.
    """

    bucket: Bucket | None = None
    slices: tuple[tuple[str, str], ...] = ()
    label: str = ""
    predicted: str = ""

    def passes(self, one: RowResult, kind: OutputKind) -> bool:
        """Whether a row is one of them."""
        told = {side.predicted for side in (one.a, one.b) if side is not None and not side.error}
        return (
            (self.bucket is None or one.bucket(kind) is self.bucket)
            and all(one.slices.get(name) == value for name, value in self.slices)
            and (not self.label or one.label == self.label)
            and (not self.predicted or self.predicted in told)
        )


def slices_of(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`NAME=VALUE` as pairs."""
    found = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Invalid(f"'{text[:60]}' is not a valid slice", try_this="slice=NAME=VALUE")
        found.append((name, value))
    return tuple(found)


def page_of(one: RowResult, kind: OutputKind) -> dict[str, Any]:
    """One row for programs."""
    return {
        "row": one.row,
        "label": one.label,
        "name": one.name,
        "slices": dict(one.slices),
        "bucket": one.bucket(kind).value,
        "a": asdict(one.a),
        "b": None if one.b is None else asdict(one.b),
    }


def csv_pieces(results: Sequence[RowResult], kind: OutputKind) -> Iterator[str]:
    """Every row as CSV. A text that a spreadsheet would run as a formula gets an apostrophe."""
    slices = list(dict.fromkeys(name for one in results for name in one.slices))
    has_b = any(one.b is not None for one in results)
    sides = ("a", "b") if has_b else ("a",)
    names = [f"{field}_{side}" for side in sides for field in _SIDE]
    heads = ["row", "name", "label", *(f"slice_{name}" for name in slices), "bucket", *names]
    yield _line(heads)
    for one in results:
        cells = [one.row, one.name, one.label]
        cells += [one.slices.get(name, "") for name in slices]
        cells.append(one.bucket(kind).value)
        for told in (one.a, one.b)[: len(sides)]:
            cells += _cells(told)
        yield _line(cells)


def _cells(told: SideOutput | None) -> list[Any]:
    fields: Mapping[str, Any] = {} if told is None else asdict(told)
    return ["" if fields.get(name) is None else fields[name] for name in _SIDE]


def _line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow([_safe(cell) for cell in cells])
    return text.getvalue()


def _safe(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.startswith(_RISKY):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
