"""The dashboard: Grafana can load it, nothing covers anything, and it asks for what there is."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

from k8s import queries
from k8s.rendering import Rendering

COLUMNS = 24  # of Grafana's grid
BOARD = json.loads((queries.COMPONENT / "dashboard.json").read_text("utf-8"))
PANELS = BOARD["panels"]
VARIABLES = {one["name"] for one in BOARD["templating"]["list"]}
WITHIN = {"$__rate_interval": "5m", "$namespace": "servegate", "$model": ".*"}


def asked(expr: str) -> str:
    """A query as Prometheus gets it."""
    for name, value in WITHIN.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


EVERY = [asked(target["expr"]) for panel in PANELS for target in panel["targets"]]


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
    assert queries.checked(tmp_path, EVERY) == ""
    assert "parse error" in queries.checked(tmp_path, [*EVERY, "sum by (rate("])


def test_variables_are_those_that_queries_use() -> None:
    text = json.dumps(PANELS)
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "labels", "value"}
    assert used == VARIABLES


def test_what_panels_and_runbooks_call_each_other_by_is_right() -> None:
    text = (queries.ROOT / "docs/runbooks.md").read_text("utf-8")
    titles = {panel["title"] for panel in PANELS}
    assert {"Failed calls, by error", "In Triton"} <= titles
    assert all(f"*{title}*" in text for title in ("Failed calls, by error", "In Triton"))
    named = set(re.findall(r"Servegate\w+", json.dumps([panel["description"] for panel in PANELS])))
    assert named <= {rule["alert"] for rule in queries.rules("alert")}


def test_grafana_finds_it_where_the_component_is_used(rendered: dict[str, Rendering]) -> None:
    boards: list[dict[str, Any]] = [
        one
        for each in rendered.values()
        for one in each.objects
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "servegate-dashboard"
    ]
    assert boards
    for one in boards:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(one["data"]["servegate.json"]) == BOARD
