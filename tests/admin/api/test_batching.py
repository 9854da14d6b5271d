"""How a version is batched, over the admin API."""

from pathlib import Path

from admin.api.admin_scene import application, assert_error, send
from control.batching.watched import Scene, plain
from fastapi import FastAPI

from serve.triton.config import parse

_PATH = "/api/models/m/versions/1/batching"


def admin(scene: Scene) -> FastAPI:
    return application(scene.plane, overviews=scene.overviews)


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


def test_what_was_never_called_is_told_with_zeros_and_what_is_not_there_is_not_found(
    tmp_path: Path,
) -> None:
    app = admin(plain(tmp_path))
    page = send(app, "GET", _PATH).json()
    assert (page["window"]["calls"], page["window"]["batches"]) == (0, [])
    assert (page["window"]["occupancy"], page["window"]["busy"]) == (None, None)
    assert (page["service"], page["advice"], page["is_enough"]) == (None, [], False)
    assert_error(send(app, "GET", "/api/models/m/versions/9/batching"), 404, "unknown_version")
    assert_error(send(app, "GET", "/api/models/x/versions/1/batching"), 404, "unknown_model")
