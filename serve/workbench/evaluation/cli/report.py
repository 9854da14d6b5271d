"""The report of an evaluation for people: a few lines, without colour."""

from collections.abc import Iterator, Mapping
from typing import Any

_BUCKETS = ("both-right", "only-a", "only-b", "both-wrong", "right", "wrong", "answered", "failed")


def lines(page: Mapping[str, Any]) -> Iterator[str]:
    """What was found, the sides first."""
    report = page["report"]
    yield _head(page)
    for name in ("a", "b"):
        if report[name] is not None:
            yield f"  {name.upper()} version {page[name]}: {side(report[name])}"
    if report["compared"] is not None:
        yield f"  {compared(report['compared'])}"
    counts = report["buckets"]
    yield "  rows: " + ", ".join(f"{name} {counts[name]}" for name in _BUCKETS if name in counts)
    for one in report["slices"]:
        parts = [f"{one['rows']} rows"]
        for name in ("a", "b"):
            if one[name] is not None:
                parts.append(f"{name.upper()} {_measure(one[name])}")
        yield f"  {one['name']}={one['value']}: {', '.join(parts)}"
    for one in report["gates"]:
        value = "not measured" if one["value"] is None else f"{one['value']:.6g}"
        yield f"  {'passed' if one['passed'] else 'FAILED'}  {one['text']}  ({value})"


def side(page: Mapping[str, Any]) -> str:
    """One version."""
    parts = [_measure(page)]
    if page["macro_f1"] is not None:
        parts.append(f"macro F1 {page['macro_f1']:.4f}")
    if page["ece"] is not None:
        parts.append(f"calibration error {page['ece']:.4f}")
    if page["latency"] is not None:
        times = (f"{name} {page['latency'][name]:.3g} ms" for name in ("p50", "p90", "p99"))
        parts.append(", ".join(times))
    if page["failed"]:
        parts.append(f"{page['failed']} failed")
    return ", ".join(parts)


def compared(page: Mapping[str, Any]) -> str:
    """Two versions."""
    parts = []
    if page["agreement"] is not None:
        parts.append(f"agreement {_estimate(page['agreement'])}")
    if page["drop"] is not None:
        parts.append(f"drop {_points(page['drop'])}")
    if page["mcnemar"] is not None:
        pairs = page["pairs"]
        parts.append(
            f"McNemar p {page['mcnemar']:.3g} ({pairs['only_a']} only A, {pairs['only_b']} only B)"
        )
    if page["difference"] is not None:
        parts.append(f"mean difference {page['difference']:.4g}")
    return ", ".join(parts)


def _head(page: Mapping[str, Any]) -> str:
    rows = f"{page['done']} of {page['total']} rows"
    data = f"dataset {page['dataset']}, revision {page['revision']}"
    return f"{page['id']}: {page['state']}, model {page['model']}, {data}, {rows}"


def _measure(page: Mapping[str, Any]) -> str:
    if page["accuracy"] is not None:
        return f"accuracy {_estimate(page['accuracy'])}"
    if page["mae"] is not None:
        return f"MAE {page['mae']:.4g}, RMSE {page['rmse']:.4g}"
    return "no successful rows"


def _estimate(found: Mapping[str, float]) -> str:
    return f"{found['value']:.4f} ({found['low']:.4f} to {found['high']:.4f})"


def _points(found: Mapping[str, float]) -> str:
    value, low, high = (100 * found[name] for name in ("value", "low", "high"))
    return f"{value:+.2f} pp ({low:+.2f} to {high:+.2f})"
