"""How a version is run, over the admin API: its configuration, changes of it, batching, benches."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api import admin_scene
from admin.api.admin_scene import (
    application,
    assert_error,
    client_of,
    plane,
    send,
)
from builders import ControlPlane
from control.batching import test_benches, watched
from control.batching.changing_scene import CONFIG, Scene
from control.versions_scene import version
from fastapi import FastAPI

from serve.triton.config import parse

BATCHING = "/api/models/m/versions/1/batching"
BENCHES = "/api/models/m/versions/1/benches"
PATH = "/api/models/m/versions/1/serving-configuration"
SIXTEEN = {"fields": {"max_batch_size": 16}}
Client = httpx2.AsyncClient


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, version("m", 1, config=CONFIG), version("m", 2, config=CONFIG))


def play(scene: Scene, *steps: Callable[[Client], Awaitable[httpx2.Response]]) -> list[Any]:
    """What a client of the API is answered while the replicas live."""
    client = client_of(application(scene.plane, configuring=scene.configuring))
    return scene.play(*(lambda step=step: step(client) for step in steps))


def get(client: Client) -> Awaitable[httpx2.Response]:
    return client.get(PATH)


def put(
    body: Any, path: str = PATH, query: str = "", **headers: str
) -> Callable[[Client], Awaitable[httpx2.Response]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda client: client.put(path + query, json=body, headers=named)


def test_a_configuration_is_shown_before_anybody_has_changed_it(scene: Scene) -> None:
    (answer,) = play(scene, get)
    page = answer.json()
    assert (page["name"], page["shared_with"], page["fields"]) == ("m", [2], {})
    assert "max_batch_size: 8" in page["base"] and page["config"] == page["base"]
    assert (page["author"], page["at"], page["change"]) == ("", None, None)
    assert page["replicas"]["a"] == {"state": "applied", "why": ""}
    assert answer.headers["etag"] == page["etag"] == '"0"'


def test_a_change_is_answered_when_every_replica_has_it(scene: Scene) -> None:
    (answer,) = play(scene, put(SIXTEEN, servegate_author="ada", servegate_reason="more"))
    page = answer.json()
    assert (answer.status_code, page["fields"]) == (200, {"max_batch_size": 16})
    assert "max_batch_size: 16" in page["config"] and "max_batch_size: 8" in page["base"]
    assert (page["author"], page["reason"]) == ("ada", "more")
    assert {one["state"] for one in page["replicas"].values()} == {"applied"}
    assert (page["change"]["phase"], page["change"]["outcome"]) == ("done", "applied")
    assert answer.headers["etag"] == page["etag"]


def test_a_dry_run_shows_what_would_be_and_a_change_need_not_be_waited_for(scene: Scene) -> None:
    dry, after, accepted = play(
        scene, put(SIXTEEN, query="?dry_run=true"), get, put(SIXTEEN, query="?wait=false")
    )
    assert dry.status_code == 200 and "max_batch_size: 16" in dry.json()["config"]
    assert after.json()["fields"] == {}
    assert (accepted.status_code, accepted.json()["change"]["outcome"]) == (202, "")


def test_what_is_wrong_is_refused_with_its_reason(scene: Scene) -> None:
    size = {"dynamic_batching": {"preferred_batch_size": [64]}}
    scene.tritons["a"].refuses = {16}
    unread, check, version_, stale, taken_back = play(
        scene,
        *(put({"fields": each}) for each in ({"max_batch_size": "x"}, size)),
        put(SIXTEEN, PATH.replace("/1/", "/9/")),
        put(SIXTEEN, if_match='"7"'),
        put(SIXTEEN, if_match='"0"'),
    )
    assert "cannot be read" in assert_error(unread, 422, "invalid")["error"]
    assert "preferred_batch_size" in assert_error(check, 422, "check_failed")["error"]
    assert_error(version_, 404, "unknown_version")
    assert_error(stale, 412, "precondition_failed")
    assert "no memory for batches of 16" in assert_error(taken_back, 409, "conflict")["why"]


# --- the text of a configuration ------------------------------------------------------------------


def test_a_version_is_shown_with_its_text_and_against_another(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    page = send(app, "GET", "/api/models/m/versions/1/configuration").json()
    assert (page["model"], page["version"], page["published"]) == ("m", 1, False)
    assert 'backend: "onnxruntime"' in page["config"]
    assert page["card"] == {"summary": "a model"}
    path = "/api/models/m/versions/2/configuration/diff"
    page = admin_scene.play(app, lambda one: one.get(path, params={"with": 1})).json()
    assert (page["old"], page["new"], page["same"]) == (1, 2, True)
    assert {line["sign"] for line in page["lines"]} == {" "}
    assert_error(send(app, "GET", "/api/models/m/versions/9/configuration"), 404, "unknown_version")


# --- batching -------------------------------------------------------------------------------------


def admin(scene: watched.Scene) -> FastAPI:
    return application(scene.plane, overviews=scene.overviews)


def test_everything_that_is_known_is_told(tmp_path: Path) -> None:
    scene = watched.plain(tmp_path)
    scene.configurations["a"] = parse(
        "max_batch_size: 8 instance_group { count: 2 kind: KIND_CPU }"
    )
    scene.look({1: (100, 5), 4: (300, 8)}, queue=2)
    page = send(admin(scene), "GET", BATCHING).json()
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


def test_what_was_never_called_is_zeros_and_what_is_not_there_not_found(tmp_path: Path) -> None:
    app = admin(watched.plain(tmp_path))
    page = send(app, "GET", BATCHING).json()
    assert (page["window"]["calls"], page["window"]["batches"]) == (0, [])
    assert (page["window"]["occupancy"], page["window"]["busy"]) == (None, None)
    assert (page["service"], page["advice"], page["is_enough"]) == (None, [], False)
    assert_error(send(app, "GET", "/api/models/m/versions/9/batching"), 404, "unknown_version")


# --- benches --------------------------------------------------------------------------------------


def lent(folder: Path, *asked: tuple[str, str, Any]) -> list[httpx2.Response]:
    """The answers; `{id}` in a path stands for the bench that was opened last."""

    async def main() -> list[httpx2.Response]:
        benches = test_benches.Scene().benches
        running = asyncio.create_task(benches.run())
        answers: list[httpx2.Response] = []
        identity = ""
        async with client_of(application(ControlPlane(folder), benches=benches)) as client:
            for method, path, body in asked:
                answer = await client.request(method, path.format(id=identity), json=body)
                if answer.status_code == 201:
                    identity = answer.json()["id"]
                answers.append(answer)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return answers

    return asyncio.run(main())


def test_a_bench_is_opened_kept_changed_and_closed(tmp_path: Path) -> None:
    other = {"max_batch_size": 8}
    answers = lent(
        tmp_path,
        ("POST", BENCHES, {"fields": test_benches.FIELDS}),
        ("GET", "/api/benches/{id}", None),
        ("PUT", "/api/benches/{id}", {"fields": other}),
        ("DELETE", "/api/benches/{id}", None),
        ("GET", "/api/benches/{id}", None),
    )
    assert [one.status_code for one in answers] == [201, 200, 200, 204, 404]
    page = answers[0].json()
    assert page.keys() == {
        *("id", "model", "version", "name", "http", "grpc", "metrics", "replica", "fields"),
        "expires_in",
    }
    assert (page["fields"], answers[2].json()["fields"]) == (test_benches.FIELDS, other)


def test_a_second_bench_and_a_body_that_says_something_else_are_refused(tmp_path: Path) -> None:
    asked: tuple[dict[str, Any], ...] = {}, {"replica": "a"}, {"config": {}}
    _, second, other = lent(tmp_path, *(("POST", BENCHES, body) for body in asked))
    assert "another bench is open" in assert_error(second, 409, "conflict")["what"]
    assert_error(other, 422, "invalid")
