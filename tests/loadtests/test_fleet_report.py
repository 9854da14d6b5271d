"""The report of the simulated fleet, on results that were made up."""

from typing import Any

import pytest

from loadtests.bench.fleet_report import COSTS, charts, section
from serve.pages.charts import draw


def size(replicas: int, *, cold: float | None = None) -> dict[str, Any]:
    return {
        "replicas": replicas,
        "planes": 10,
        "models": 50,
        "cold": cold,
        "cold_cpu": cold,
        "named": 0.5,
        "called": replicas / 100,
        "called_cpu": 1.0,
        "came": [0.2, 0.1, 0.3],
        "went": [0.1],
        "died": [0.6, 1.1],
        "moved": [0.02],
        "rest": {
            "control": replicas / 10_000,
            "fakes": 0.1,
            "looks": 400.0,
            "counts": 40.0,
            "scrapes": 40.0,
            "api": 0,
            "seconds": 20.0,
        },
        "snapshot": 90 * replicas,
        "compressed": 9 * replicas,
        "control_memory": 100.0 + replicas / 10,
        "worker_memory": 30.0,
        "fakes_cpu": 9.0,
    }


def part(replicas: int) -> dict[str, Any]:
    times = {"compile": 1e-6, "write": 2e-6, "read": 4e-6}
    grown = {name: each * replicas for name, each in times.items()}
    return {"replicas": replicas, **grown, "call": 5e-6, "avoid": 6e-6, "bytes": 90 * replicas}


FOUND = {
    "date": "2026-01-01",
    "machine": "a machine",
    "load_seconds": 0.2,
    "others": 0.01,
    "sizes": [size(50, cold=4.0), size(200, cold=9.0), size(1000), size(5000)],
    "parts": [part(50), part(200), part(1000), part(5000)],
}


def test_each_size_has_its_line_in_each_table() -> None:
    lines = list(section(FOUND))
    assert sum(line.startswith("| 5,000 |") for line in lines) == 3
    assert "| 50 | 4.0 | 0.5 | 0.20 (0.30) | 0.10 (0.10) | 0.85 (1.10) | 0.02 (0.02) |" in lines
    assert "| 1,000 | – | 10.0 |" in "\n".join(lines)


def test_costs_are_drawn_relative_to_200_replicas() -> None:
    drawn = charts(FOUND)
    assert set(drawn) == {"fleet-time.svg", "fleet-cost.svg", "fleet-parts.svg"}
    costs = {one.name: dict(one.points) for one in drawn["fleet-cost.svg"].series}
    assert set(costs) == set(COSTS)
    assert costs["size of a snapshot"][200.0] == 1.0
    assert costs["size of a snapshot"][5000.0] == pytest.approx(25.0)
    assert all("</svg>" in draw(chart) for chart in drawn.values())


def test_a_cell_is_worked_out_from_the_largest_fleet() -> None:
    rows = {
        cells[1]: cells[3]
        for line in section(FOUND)
        if len(cells := [cell.strip() for cell in line.split("|")]) == 5
    }
    assert rows["workers"] == "267"
    assert rows["choosing a replica, share of a worker's time"] == "2.5 %"
    # 5 ms to compile, 10 ms to write, and 2 ms for each worker
    assert rows["time until the last worker has a change"] == "0.55 s"
    assert rows["continuous changes: time between snapshots"] == "2.2 s"
    assert rows["bandwidth for snapshots"] == "438 Mbit/s"
    assert rows["idle control plane"] == "50 % of a core"
