"""What PromQL asks for, and what there is: the program's metrics, Triton's, and Prometheus' own.

The program's are read from its registries, as docs/reference/metrics.md is; Triton's are those that
the program itself reads (`serve/triton/metrics.py`).
"""

import asyncio
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric

from k8s.cluster import ROOT
from serve.app import tls
from serve.app.control import ControlPlane
from serve.app.usage import families
from serve.app.worker import Worker
from serve.settings import Settings
from serve.triton import metrics as triton

Object = dict[str, Any]
Labels = dict[str, frozenset[str]]  # by metric

COMPONENT = ROOT / "k8s/components/prometheus"
_OF_POD = frozenset({"namespace", "pod", "container", "job", "endpoint", "instance"})
_OF_CALL = frozenset({"model", "version"})
_TRITON = {
    **dict.fromkeys(triton._OF_MODEL, _OF_CALL),
    **dict.fromkeys(triton._OF_GPU, frozenset({"gpu_uuid"})),
    triton._OF_MACHINE: frozenset[str](),
}
_PROMETHEUS = {"ALERTS": frozenset({"alertname", "alertstate", "severity", "namespace"})}
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r"(?<![\w:\"])([a-zA-Z_:][\w:]*)(?![\w:]*\s*\()")
_WORDS = frozenset({"and", "or", "unless", "offset", "bool"})


def component(name: str) -> Any:
    """A file of k8s/components/prometheus, read."""
    return yaml.safe_load((COMPONENT / name).read_text("utf-8"))


def groups() -> list[Object]:
    """The groups of the PrometheusRule."""
    found: list[Object] = component("prometheusrule.yaml")["spec"]["groups"]
    return found


def rules(kind: str) -> list[Object]:
    """All rules that are an `alert`, or a `record`."""
    return [rule for group in groups() for rule in group["rules"] if kind in rule]


@cache
def metrics() -> Labels:
    """Every series that there is, with its labels."""
    found = asyncio.run(_of_program())
    known: Labels = {**_PROMETHEUS}
    for family in found:
        names = frozenset(getattr(family, "_labelnames", ())) | _OF_POD
        for name, more in _series(family.name, family.type):
            known[name] = names | more
    pool = frozenset({"pool"})  # triton-podmonitor.yaml
    known |= {name: labels | _OF_POD | pool for name, labels in _TRITON.items()}
    return known | {rule["record"]: _grouped(rule["expr"]) for rule in rules("record")}


async def _of_program() -> list[Metric]:
    """The metrics of a worker and of a control plane, which are built as they are for real."""
    with tempfile.TemporaryDirectory() as folder:
        source = "kubernetes=http://127.0.0.1:1/a"
        given = Settings(
            state=folder, triton=("one=127.0.0.1:1:2:3",), discover=(source,), model_repo=""
        )
        return [
            *Worker(given, 0, secret="-").registry.collect(),
            *ControlPlane(given).registry.collect(),
            *families({}),
            *tls.families(),
        ]


def _series(name: str, kind: str) -> Iterator[tuple[str, frozenset[str]]]:
    if kind == "histogram":
        yield f"{name}_bucket", frozenset({"le"})
        yield from ((f"{name}_{part}", frozenset[str]()) for part in ("sum", "count"))
    elif kind == "counter":
        yield f"{name}_total", frozenset()
    else:
        yield name, frozenset({"source"})  # the metrics port keeps gauges apart by it


def _grouped(expr: str) -> frozenset[str]:
    """The labels that the outermost `by` keeps."""
    found = re.match(r"\s*\w+ by \(([^)]*)\)", expr)
    assert found is not None, expr
    return frozenset(found[1].replace(" ", "").split(","))


def wrong(expr: str, known: Labels) -> list[str]:
    """What a query names that there is not: metrics, and labels of none of its metrics."""
    bare = _TEXT.sub('""', expr)
    selectors = re.findall(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}", bare)
    matched = {name: re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside) for name, inside in selectors}
    lists = re.findall(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)", bare)
    used = {one for words in lists for one in re.findall(r"\w+", words)}
    left = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    left = re.sub(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", "", left)
    names = {one for one in _NAME.findall(left) if one not in _WORDS and not one[0].isdigit()}
    problems = [f"there is no metric {name}" for name in sorted(names - known.keys())]
    problems += [
        f"{name} has no label {label}"
        for name, labels in matched.items()
        for label in labels
        if label not in known.get(name, ())
    ]
    every = frozenset().union(*(known.get(name, frozenset()) for name in names))
    return [*problems, *(f"nobody has the label {label}" for label in sorted(used - every))]


def promtool(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Prometheus' own tool; the tests end where there is none."""
    found = shutil.which("promtool")
    if found is None:
        pytest.exit("there is no promtool; `make test-k8s` says what is missing", 2)
    return subprocess.run([found, *map(str, words)], capture_output=True, text=True, timeout=120)


def checked(folder: Path, queries: Iterable[str]) -> str:
    """What promtool finds wrong with these queries; empty when it is nothing."""
    made = [{"record": f"query:{number}", "expr": one} for number, one in enumerate(queries)]
    path = folder / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": made}]}))
    done = promtool("check", "rules", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr
