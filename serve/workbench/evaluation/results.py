"""Results: what came of each row on each side, and the bucket that this puts it into."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

LONGEST_ERROR = 300  # characters


class OutputKind(StrEnum):
    """The kind of an output: scores of classes, a value that is right or wrong, or a number."""

    CLASSES = "classes"
    VALUES = "values"
    NUMBERS = "numbers"


class Bucket(StrEnum):
    """The outcome of a row, for two versions, for one version, or for numbers."""

    BOTH_RIGHT = "both-right"
    ONLY_A = "only-a"
    ONLY_B = "only-b"
    BOTH_WRONG = "both-wrong"
    RIGHT = "right"
    WRONG = "wrong"
    ANSWERED = "answered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SideOutput:
    """What one side has told of a row, or why it has not.

    `score` is the highest one, `confidence` the same where the scores are probabilities.
    `milliseconds` are of the call, which may have been for several rows.
    """

    predicted: str = ""
    score: float | None = None
    confidence: float | None = None
    milliseconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row of the dataset and what became of it; `b` is None where only A is asked."""

    row: int
    label: str
    name: str
    slices: Mapping[str, str]
    a: SideOutput
    b: SideOutput | None

    @property
    def has_failed(self) -> bool:
        """Whether a side has not answered."""
        return bool(self.a.error or (self.b and self.b.error))

    def bucket(self, kind: OutputKind) -> Bucket:
        """Where it belongs."""
        if self.has_failed:
            return Bucket.FAILED
        if kind is OutputKind.NUMBERS:
            return Bucket.ANSWERED
        right = self.a.predicted == self.label
        if self.b is None:
            return Bucket.RIGHT if right else Bucket.WRONG
        other = self.b.predicted == self.label
        if right:
            return Bucket.BOTH_RIGHT if other else Bucket.ONLY_A
        return Bucket.ONLY_B if other else Bucket.BOTH_WRONG


def to_lines(results: Iterable[RowResult]) -> bytes:
    """Results as they are kept: one line of JSON each."""
    return b"".join(_line(one) for one in results)


def from_lines(data: bytes) -> list[RowResult]:
    """What `to_lines` has made."""
    return [_result(json.loads(line)) for line in data.splitlines()]


def _line(one: RowResult) -> bytes:
    page = [one.row, one.label, one.name, dict(one.slices), _told(one.a)]
    page.append(None if one.b is None else _told(one.b))
    return json.dumps(page, separators=(",", ":")).encode() + b"\n"


def _told(told: SideOutput) -> list[Any]:
    return [told.predicted, told.score, told.confidence, told.milliseconds, told.error]


def _result(page: list[Any]) -> RowResult:
    row, label, name, slices, a, b = page
    return RowResult(
        row,
        label,
        name,
        MappingProxyType(slices),
        SideOutput(*a),
        None if b is None else SideOutput(*b),
    )
