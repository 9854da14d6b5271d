"""How a version is batched, over the admin API."""

import dataclasses
from pathlib import Path

from control.batching.watched import Scene, decide, plain
from fastapi import FastAPI
from listeners.admin_scene import application, assert_error, send

from serve.control.batching.hints import BEGINS
from serve.triton.config import parse

_PATH = "/api/models/m/versions/1/batching"


def admin(scene: Scene) -> FastAPI:
    app = application(scene.plane)
    control = app.state.control
    app.state.control = dataclasses.replace(control, overviews=scene.overviews)
    return app


def test_everything_that_is_known_is_told(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    scene.configurations["a"] = parse(
        "max_batch_size: 8 instance_group { count: 2 kind: KIND_CPU }"
    )
    scene.look({1: (100, 5), 4: (300, 8)}, queue=2)
    page = send(admin(scene), "GET", _PATH).json()
    assert (page["model"], page["version"], page["name"]) == ("m", 1, "m")
    assert (page["replicas"], page["shared_with"]) == (["a"], [2])
    assert (page["max_batch_size"], page["instances"], page["instances_told"]) == (8, 2, True)
    assert page["meaning"][0]["field"] == "max_batch_size"
    window = page["window"]
    assert window["batches"] == [
        {"rows": 1, "executions": 100, "share": 0.25, "seconds": 0.005},
        {"rows": 4, "executions": 300, "share": 0.75, "seconds": 0.008},
    ]
    assert (window["calls"], window["executions"], window["rate"]) == (1300, 400, 13.0)
    assert (window["occupancy"], window["rows_per_execution"]) == (3.25 / 8, 3.25)
    assert window["busy"] == 2.9 / 200
    assert (round(page["service"]["fixed"], 6), page["service"]["allowed"]) == (0.004, None)
    assert [one["rule"] for one in page["advice"]] == ["instances-idle"]
    assert (page["is_enough"], page["hints"], page["parts"]) == (True, [], None)


def test_what_was_never_called_is_told_with_zeros(tmp_path: Path) -> None:
    page = send(admin(plain(tmp_path)), "GET", _PATH).json()
    assert (page["window"]["calls"], page["window"]["batches"]) == (0, [])
    assert (page["window"]["occupancy"], page["window"]["busy"]) == (None, None)
    assert (page["service"], page["advice"], page["is_enough"]) == (None, [], False)


def test_hints_are_told_with_what_it_was_tuned_for(tmp_path: Path) -> None:
    scene = plain(tmp_path)
    tuned = {"rate": 2.0, "objective": "p99<50ms"}
    decide(scene.plane, "m", {"fields": {"max_batch_size": 16}, "group": "", "tuned": tuned})
    scene.look({1: (1000, 5)})
    for _ in range(BEGINS):
        scene.overviews.judge()
    page = send(admin(scene), "GET", _PATH).json()
    assert (page["revised"], page["tuned"]) == (["max_batch_size"], tuned)
    (hint,) = page["hints"]
    assert (hint["hint"], hint["since"]) == ("rate-above", 1_700_000_000.0)
    assert hint["fix"] == "servegate batching tune m@1 --slo 'p99<50ms'"


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    app = admin(plain(tmp_path))
    assert_error(send(app, "GET", "/api/models/m/versions/9/batching"), 404, "unknown_version")
    assert_error(send(app, "GET", "/api/models/x/versions/1/batching"), 404, "unknown_model")
