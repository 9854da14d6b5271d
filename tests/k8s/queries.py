"""Rules and queries of the component prometheus, and Prometheus' own tool that reads them."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.cluster import ROOT

Object = dict[str, Any]
COMPONENT = ROOT / "k8s/components/prometheus"


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
