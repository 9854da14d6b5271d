"""The report of an evaluation, for programs: every number, by side, class and slice."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from serve.statistics.gates import EvaluationGate, judge
from serve.workbench.evaluation import statistics
from serve.workbench.evaluation.results import OutputKind, RowResult
from serve.workbench.evaluation.statistics import SideStatistics, VersionComparison

MOST_CLASSES = 200  # of a confusion matrix; the most confused pairs are told in any case
MOST_VALUES = 100  # of a slice
MOST_PAIRS = 20
Page = dict[str, Any]


def report(
    results: Sequence[RowResult], kind: OutputKind, gates: Sequence[EvaluationGate], *, two: bool
) -> Page:
    """What was found so far."""
    good = statistics.answered(results)
    a = statistics.side(results, kind, "a")
    b = statistics.side(results, kind, "b") if two else None
    both = statistics.compared(results, kind) if two else None
    buckets = Counter(one.bucket(kind).value for one in results)
    page: Page = {
        "kind": kind.value,
        "rows": len(results),
        "answered": len(good),
        "buckets": dict(buckets),
        "a": asdict(a),
        "b": None if b is None else asdict(b),
        "compared": None if both is None else _compared(both),
        **(_by_class(good) if kind is not OutputKind.NUMBERS else {}),
        "slices": _slices(results, kind, two=two),
    }
    page["gates"] = [asdict(one) for one in judge(gates, measured(page))]
    return page


def measured(page: Mapping[str, Any]) -> Mapping[str, float | None]:
    """The numbers of a report that gates may be about, by name; latencies in milliseconds."""
    found: dict[str, float | None] = {}
    for name in ("a", "b"):
        if (side := page[name]) is None:
            continue
        found |= _estimate(f"accuracy({name})", side["accuracy"])
        found |= {f"{each}({name})": side[each] for each in ("macro_f1", "ece", "mae", "rmse")}
        found[f"failed({name})"] = side["failed"] / page["rows"] if page["rows"] else None
        latency = side["latency"] or {}
        found |= {f"{each}({name})": latency.get(each) for each in ("p50", "p90", "p99")}
    if (both := page["compared"]) is not None:
        found |= _estimate("agreement", both["agreement"]) | _estimate("drop", both["drop"])
        found |= {each: both[each] for each in ("mcnemar", "difference")}
    return found


def finite(value: Any) -> Any:
    """JSON has neither NaN nor infinities: null stands for them."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _estimate(name: str, found: Mapping[str, float] | None) -> dict[str, float | None]:
    known = found or {}
    ends = {f"{name}.{end}": known.get(end) for end in ("low", "high")}
    return {name: known.get("value"), **ends}


def _compared(both: VersionComparison) -> Page:
    page = asdict(both)
    page["mcnemar"] = page.pop("p")
    return page


def _by_class(good: Sequence[RowResult]) -> Page:
    """Per-class numbers and confusion matrices, as far as they are not too many to be read."""
    confused = {
        name: _pairs(Counter((label, told) for label, told in pairs if label != told))
        for name, pairs in (
            ("a", [(one.label, one.a.predicted) for one in good]),
            ("b", [(one.label, one.b.predicted) for one in good if one.b]),
        )
    }
    names = {text for one in good for text in (one.label, one.a.predicted)}
    names |= {one.b.predicted for one in good if one.b}
    if len(names) > MOST_CLASSES:
        return {"classes": [], "confusion": None, "confused": confused, "distinct": len(names)}
    tables = statistics.tables(good)
    b = tables.confusion_b
    return {
        "classes": [
            {
                "label": label,
                "support": tables.support[place],
                "a": asdict(tables.a[place]),
                "b": asdict(tables.b[place]) if tables.b else None,
            }
            for place, label in enumerate(tables.labels)
        ],
        "confusion": {
            "labels": list(tables.labels),
            "a": tables.confusion_a.tolist(),
            "b": None if b is None else b.tolist(),
            "difference": None if b is None else (b - tables.confusion_a).tolist(),
        },
        "confused": confused,
        "distinct": len(names),
    }


def _pairs(counts: Counter[tuple[str, str]]) -> list[Page]:
    """The most frequent mistakes."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_PAIRS]
    return [{"label": label, "predicted": told, "rows": count} for (label, told), count in ranked]


def _slices(results: Sequence[RowResult], kind: OutputKind, *, two: bool) -> list[Page]:
    """The same numbers for each value of each slice, without what is by class."""
    pages = []
    for (name, value), mine in statistics.by_slice(results, MOST_VALUES).items():
        b = statistics.side(mine, kind, "b") if two else None
        both = statistics.compared(mine, kind) if two else None
        pages.append(
            {
                "name": name,
                "value": value,
                "rows": len(mine),
                "answered": len(statistics.answered(mine)),
                "a": _short(statistics.side(mine, kind, "a")),
                "b": None if b is None else _short(b),
                "compared": None if both is None else _compared(both),
            }
        )
    return pages


def _short(side: SideStatistics) -> Page:
    page = asdict(side)
    del page["bins"]
    return page
