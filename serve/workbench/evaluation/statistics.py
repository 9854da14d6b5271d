"""Statistics of an evaluation: pure functions of its results.

All of them are over the rows that every side has answered, so that two versions are measured by the
same rows; how many each has not answered is told beside them. Quantiles are numpy's, which
interpolate. Per-class numbers are scikit-learn's, with 0 where nothing could be counted; macro F1
is the mean over every class that is a label or was predicted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serve.statistics.intervals import Estimate, Pairs, mcnemar, newcombe, wilson
from serve.workbench.evaluation.results import OutputKind, RowResult, SideOutput

BINS = 15  # of the calibration error, of equal width


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Milliseconds of the calls, by row."""

    p50: float
    p90: float
    p99: float
    mean: float


@dataclass(frozen=True, slots=True)
class Bin:
    """The rows whose confidence is in (low, high]: how sure, and how often right."""

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class OfClass:
    """One class on one side."""

    precision: float
    recall: float
    f1: float
    predicted: int


@dataclass(frozen=True, slots=True)
class SideStatistics:
    """One version. What does not apply is None: accuracy to numbers, errors to classes."""

    failed: int
    latency: LatencySummary | None
    accuracy: Estimate | None = None
    macro_f1: float | None = None
    ece: float | None = None
    bins: tuple[Bin, ...] = ()
    mae: float | None = None
    rmse: float | None = None


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Two versions: `drop` is the accuracy of A less that of B, `p` McNemar's."""

    agreement: Estimate | None
    drop: Estimate | None = None
    p: float | None = None
    pairs: Pairs | None = None
    difference: float | None = None  # mean |a - b| of numbers


@dataclass(frozen=True, slots=True)
class Tables:
    """By class: the labels in order, how many rows each has, and both sides' numbers.

    Confusion matrices have a row per label and a column per predicted class.
    """

    labels: tuple[str, ...]
    support: tuple[int, ...]
    a: tuple[OfClass, ...]
    b: tuple[OfClass, ...]
    confusion_a: NDArray[np.int64]
    confusion_b: NDArray[np.int64] | None


def answered(results: Sequence[RowResult]) -> list[RowResult]:
    """The rows that every side has answered."""
    return [one for one in results if not one.has_failed]


def side(results: Sequence[RowResult], kind: OutputKind, name: str) -> SideStatistics:
    """One version; `results` are all rows that were asked, `name` is `a` or `b`."""
    told = [(one, _of(one, name)) for one in results]
    failed = sum(bool(each.error) for _, each in told)
    good = [(one, each) for one, each in told if not one.has_failed]
    latency = _latency([each.milliseconds for _, each in good])
    if kind is OutputKind.NUMBERS:
        gaps = np.array([float(each.predicted) - float(one.label) for one, each in good])
        mae = float(np.abs(gaps).mean()) if good else None
        rmse = float(np.sqrt((gaps**2).mean())) if good else None
        return SideStatistics(failed, latency, mae=mae, rmse=rmse)
    right = [each.predicted == one.label for one, each in good]
    bins = calibration([each.confidence for _, each in good], right)
    labels, predicted = [one.label for one, _ in good], [each.predicted for _, each in good]
    return SideStatistics(
        failed,
        latency,
        accuracy=wilson(sum(right), len(right)),
        macro_f1=macro_f1(labels, predicted),
        ece=_calibration_error(bins),
        bins=bins,
    )


def compared(results: Sequence[RowResult], kind: OutputKind) -> VersionComparison:
    """Two versions by the rows that both have answered."""
    good = [(one.label, one.a.predicted, _of(one, "b").predicted) for one in answered(results)]
    agreement = wilson(sum(a == b for _, a, b in good), len(good))
    if kind is OutputKind.NUMBERS:
        gaps = [abs(float(a) - float(b)) for _, a, b in good]
        return VersionComparison(agreement, difference=float(np.mean(gaps)) if gaps else None)
    counts = Counter((a == label, b == label) for label, a, b in good)
    pairs = Pairs(
        counts[True, True], counts[True, False], counts[False, True], counts[False, False]
    )
    p = mcnemar(pairs.only_a, pairs.only_b) if good else None
    return VersionComparison(agreement, newcombe(pairs), p, pairs)


def tables(results: Sequence[RowResult]) -> Tables:
    """Everything by class."""
    good = answered(results)
    has_b = any(one.b is not None for one in good)
    truth = [one.label for one in good]
    a = [one.a.predicted for one in good]
    b = [_of(one, "b").predicted for one in good] if has_b else []
    labels = in_order({*truth, *a, *b})
    places = {label: place for place, label in enumerate(labels)}
    matrix = _confusion(truth, a, places)
    other = _confusion(truth, b, places) if has_b else None
    return Tables(
        labels,
        tuple(int(count) for count in matrix.sum(axis=1)),
        _by_class(matrix),
        () if other is None else _by_class(other),
        matrix,
        other,
    )


def macro_f1(labels: Sequence[str], predicted: Sequence[str]) -> float | None:
    """The mean F1 of all classes; None of no rows."""
    if not labels:
        return None
    hits = Counter(a for a, b in zip(labels, predicted, strict=True) if a == b)
    truth, told = Counter(labels), Counter(predicted)
    classes = truth.keys() | told.keys()
    scores = [2 * hits[one] / (truth[one] + told[one]) for one in sorted(classes)]
    return float(np.mean(scores))


def by_slice(results: Sequence[RowResult], most: int) -> Mapping[tuple[str, str], list[RowResult]]:
    """The rows by slice and its value, the largest `most` values of each slice."""
    found: dict[tuple[str, str], list[RowResult]] = {}
    for one in results:
        for name, value in one.slices.items():
            found.setdefault((name, value), []).append(one)
    kept: dict[tuple[str, str], list[RowResult]] = {}
    for name in dict.fromkeys(name for name, _ in found):
        mine = sorted((key for key in found if key[0] == name), key=lambda key: -len(found[key]))
        kept.update({key: found[key] for key in sorted(mine[:most])})
    return MappingProxyType(kept)


def calibration(confidences: Sequence[float | None], right: Sequence[bool]) -> tuple[Bin, ...]:
    """The bins that hold rows; none unless every row has a confidence."""
    if not confidences or any(one is None for one in confidences):
        return ()
    sure = np.clip(np.array(confidences, dtype=np.float64), 0.0, 1.0)
    hit = np.array(right, dtype=np.float64)
    places = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    bins = []
    for place in np.unique(places):
        mine = places == place
        low, high = place / BINS, (place + 1) / BINS
        bins.append(
            Bin(low, high, int(mine.sum()), float(sure[mine].mean()), float(hit[mine].mean()))
        )
    return tuple(bins)


def in_order(labels: set[str]) -> tuple[str, ...]:
    """Whole numbers by their value, everything else behind them by its letters."""
    return tuple(sorted(labels, key=lambda one: (not _is_whole(one), _whole(one), one)))


def _calibration_error(bins: Sequence[Bin]) -> float | None:
    """The expected calibration error: how far confidence and accuracy are apart, on average."""
    rows = sum(one.rows for one in bins)
    if rows == 0:
        return None
    return sum(one.rows * abs(one.confidence - one.accuracy) for one in bins) / rows


def _latency(milliseconds: Sequence[float]) -> LatencySummary | None:
    if not milliseconds:
        return None
    p50, p90, p99 = np.quantile(milliseconds, [0.5, 0.9, 0.99]).tolist()
    return LatencySummary(p50, p90, p99, float(np.mean(milliseconds)))


def _confusion(
    truth: Sequence[str], predicted: Sequence[str], places: Mapping[str, int]
) -> NDArray[np.int64]:
    matrix = np.zeros((len(places), len(places)), dtype=np.int64)
    for label, told in zip(truth, predicted, strict=True):
        matrix[places[label], places[told]] += 1
    return matrix


def _by_class(matrix: NDArray[np.int64]) -> tuple[OfClass, ...]:
    found = []
    for place in range(len(matrix)):
        hits = int(matrix[place, place])
        support, predicted = int(matrix[place].sum()), int(matrix[:, place].sum())
        found.append(
            OfClass(
                hits / predicted if predicted else 0.0,
                hits / support if support else 0.0,
                2 * hits / (support + predicted) if support + predicted else 0.0,
                predicted,
            )
        )
    return tuple(found)


def _of(one: RowResult, name: str) -> SideOutput:
    return one.a if name == "a" else one.b or SideOutput(error="not evaluated")


def _is_whole(label: str) -> bool:
    return label.isascii() and label.removeprefix("-").isdigit() and len(label) < 18


def _whole(label: str) -> int:
    return int(label) if _is_whole(label) else 0
