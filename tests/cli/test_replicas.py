"""`servegate replica ls`: what people read of replicas, and of where they were found."""

import json
from typing import Any

from cli.commands import servegate
from workbench.loadtest.fake_sides import replica_page, side


def page(**more: Any) -> dict[str, Any]:
    return replica_page(seconds=12.0, failures={}, zone="", **more)


def source(name: str, **more: Any) -> dict[str, Any]:
    usual = {"up": True, "seconds": 5.0, "endpoints": 1, "why": "", "problems": []}
    return {"name": name, **usual, **more}


def listed(replicas: list[Any], *sources: Any, flags: tuple[str, ...] = ()) -> tuple[str, str]:
    """What is printed, and what is said beside it."""
    answers = {"/api/replicas": replicas, "/api/discovery": list(sources)}
    with side(**answers) as there:
        done = servegate("replica", "ls", *flags, "--admin-url", there.url)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_every_replica_is_a_row() -> None:
    out, said = listed([page()])
    head, row = [line.split("\t") for line in out.splitlines()]
    assert head == [
        *("replica", "state", "for", "pool", "address", "loaded", "pending", "cpu", "problem"),
    ]
    assert row[:6] == ["local-0", "up", "12 s", "default", "gpu-1:8000:8001:8002", "digits@1,2"]
    assert said == ""


def test_zones_are_shown_where_any_is_known() -> None:
    out, _ = listed([page(), page() | {"name": "b", "zone": "eu-1b"}])
    head, *rows = [line.split("\t") for line in out.splitlines()]
    assert head[4] == "zone"
    assert [row[4] for row in rows] == ["-", "eu-1b"]


def test_what_is_wrong_with_a_source_is_said_beside_the_table() -> None:
    away = source("kubernetes", up=False, why="it is away", problems=["pool a vanished"])
    out, said = listed([page()], away, source("dns=x:1:2:3"))
    assert said.splitlines() == ["kubernetes: it is away", "kubernetes: pool a vanished"]
    assert len(out.splitlines()) == 2


def test_programs_get_the_replicas_alone() -> None:
    out, said = listed([page()], source("k", up=False, why="away"), flags=("--json",))
    assert json.loads(out) == [page()]
    assert said == ""
