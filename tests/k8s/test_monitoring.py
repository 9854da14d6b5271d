"""Alerts and dashboard, tried by Prometheus' own tool; each alert has a page of what to do."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from k8s.cluster import ROOT
from k8s.rendering import Object, Rendering

COMPONENT = ROOT / "k8s/components/prometheus"
RUNBOOKS = ROOT / "docs/runbooks.md"
GROUPS: list[Object]
GROUPS = yaml.safe_load((COMPONENT / "prometheusrule.yaml").read_text("utf-8"))["spec"]["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
CASES = Path(__file__).with_name("alerts.yaml")
COLUMNS = 24  # of Grafana's grid
BOARD = json.loads((COMPONENT / "dashboard.json").read_text("utf-8"))
PANELS = BOARD["panels"]
VARIABLES = {one["name"] for one in BOARD["templating"]["list"]}
WITHIN = {"$__rate_interval": "5m", "$namespace": "servegate", "$model": ".*"}


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


def asked(expr: str) -> str:
    for name, value in WITHIN.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules and their cases, as promtool wants them."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": GROUPS}))
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
    done = promtool("check", "rules", "--lint-fatal", folder / "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_is_silent_when_not(folder: Path) -> None:
    done = promtool("test", "rules", folder / CASES.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cases().keys() == {rule["alert"] for rule in ALERTS}
    assert all({True, False} <= set(fires) for fires in cases().values()), cases()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_it_is_and_what_to_do(rule: Object) -> None:
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["for"]
    assert rule["annotations"].keys() == {"summary", "runbook_url"}
    assert "{{ $labels.namespace }}" in rule["annotations"]["summary"]
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"


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


# --- the dashboard ---


def test_grafana_can_load_it() -> None:
    assert BOARD["schemaVersion"] >= 36 and BOARD["uid"] and BOARD["title"]
    assert BOARD.get("id") is None  # it is another in each Grafana
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids) and all(isinstance(one, int) and one > 0 for one in ids)
    for panel in PANELS:
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in sources)


def test_no_panel_covers_another_or_leaves_the_page() -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS, panel["title"]
        columns = range(place["x"], place["x"] + place["w"])
        for cell in itertools.product(columns, range(place["y"], place["y"] + place["h"])):
            assert cell not in cells, f"{panel['title']} covers {cells.get(cell)}"
            cells[cell] = panel["title"]
    height = 1 + max(row for _, row in cells)
    assert len(cells) == COLUMNS * height  # nor is there a hole


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    every = [asked(target["expr"]) for panel in PANELS for target in panel["targets"]]
    assert checked(tmp_path, every) == ""
    assert "parse error" in checked(tmp_path, [*every, "sum by (rate("])


def test_variables_are_those_that_queries_use() -> None:
    text = json.dumps(PANELS)
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "labels", "value"}
    assert used == VARIABLES


def test_what_panels_and_runbooks_call_each_other_by_is_right() -> None:
    text = RUNBOOKS.read_text("utf-8")
    titles = {panel["title"] for panel in PANELS}
    assert {"Failed calls, by error", "In Triton"} <= titles
    assert all(f"*{title}*" in text for title in ("Failed calls, by error", "In Triton"))
    named = set(re.findall(r"Servegate\w+", json.dumps([panel["description"] for panel in PANELS])))
    assert named <= {rule["alert"] for rule in ALERTS}


def test_grafana_finds_it_where_the_component_is_used(rendered: dict[str, Rendering]) -> None:
    boards = [
        one
        for each in rendered.values()
        for one in each.objects
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "servegate-dashboard"
    ]
    assert boards
    for one in boards:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(one["data"]["servegate.json"]) == BOARD
