"""The alerts: Prometheus' own tool takes them and tries each, and each has a page of what to do."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s import queries
from k8s.cluster import ROOT

CASES = Path(__file__).with_name("alerts.yaml")
RUNBOOKS = ROOT / "docs/runbooks.md"
ALERTS = queries.rules("alert")
PAGES = "docs/runbooks.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules and their cases, as promtool wants them."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": queries.groups()}))
    (tmp_path / CASES.name).write_text(CASES.read_text("utf-8"))
    return tmp_path


def cases() -> dict[str, list[bool]]:
    """Of each alert, whether it is to fire, case by case."""
    found: dict[str, list[bool]] = {}
    for scene in yaml.safe_load(CASES.read_text("utf-8"))["tests"]:
        for one in scene.get("alert_rule_test", ()):
            found.setdefault(one["alertname"], []).append(bool(one.get("exp_alerts")))
    return found


def test_prometheus_takes_the_rules(folder: Path) -> None:
    done = queries.promtool("check", "rules", "--lint-fatal", folder / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_is_silent_when_not(folder: Path) -> None:
    done = queries.promtool("test", "rules", folder / CASES.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cases().keys() == {rule["alert"] for rule in ALERTS}
    assert all({True, False} <= set(fires) for fires in cases().values()), cases()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["for"]
    assert rule["annotations"].keys() == {"summary", "runbook_url"}
    assert "{{ $labels.namespace }}" in rule["annotations"]["summary"]
    assert rule["annotations"]["runbook_url"] == f"{PAGES}#{rule['alert'].lower()}"


def test_runbooks_have_a_section_for_each_alert_and_no_other() -> None:
    sections = re.split(r"^## (\w+)$", RUNBOOKS.read_text("utf-8"), flags=re.M)[1:]
    pages = dict(zip(sections[::2], sections[1::2], strict=True))
    assert sorted(pages) == sorted(rule["alert"] for rule in ALERTS)
    for name, page in pages.items():
        for part in ("For callers:", "See:", "Do:", "Outside Servegate:"):
            assert f"**{part}**" in page, f"{name} does not say: {part}"


def test_commands_of_the_runbooks_are_those_of_the_program() -> None:
    text = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    known = re.findall(r"^## (servegate [a-z ]+)$", text, re.M)
    leaves = {one for one in known if not any(other.startswith(f"{one} ") for other in known)}
    for one in re.findall(r"`(servegate [a-z ]+)", RUNBOOKS.read_text("utf-8")):
        words = one.split()
        assert any(" ".join(words[:count]) in leaves for count in (2, 3, 4)), one
