"""Serving configurations over the admin API: shown with their state, changed, refused."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import application, assert_error, history_of
from control.batching.changing_scene import CONFIG, Scene
from control.versions_scene import version

PATH = "/api/models/m/versions/1/serving-configuration"
SIXTEEN = {"fields": {"max_batch_size": 16}}
Client = httpx2.AsyncClient


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, version("m", 1, config=CONFIG), version("m", 2, config=CONFIG))


def play(scene: Scene, *steps: Callable[[Client], Awaitable[httpx2.Response]]) -> list[Any]:
    """What a client of the API is answered while the replicas live."""
    history = history_of(scene.plane, revising=scene.configuring)
    app = application(scene.plane, configuring=scene.configuring, history=history)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    client = Client(transport=transport, base_url="http://localhost:8080")
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
    bad, unread, check, version_, model = play(
        scene,
        *(put({"fields": each}) for each in ({"backend": "python"}, {"max_batch_size": "x"}, size)),
        *(put(SIXTEEN, PATH.replace(*other)) for other in (("/1/", "/9/"), ("/m/", "/x/"))),
    )
    assert "backend cannot be changed" in assert_error(bad, 422, "invalid")["error"]
    assert "cannot be read" in assert_error(unread, 422, "invalid")["error"]
    assert "preferred_batch_size" in assert_error(check, 422, "check_failed")["error"]
    assert_error(version_, 404, "unknown_version")
    assert_error(model, 404, "unknown_model")


def test_an_etag_that_is_stale_changes_nothing(scene: Scene) -> None:
    first, stale, fresh = play(
        scene,
        put(SIXTEEN, if_match='"0"'),
        put({"fields": {}}, if_match='"0"'),
        put({"fields": {}}, if_match="*"),
    )
    assert (first.status_code, fresh.status_code) == (200, 200)
    assert_error(stale, 412, "precondition_failed")


def test_a_change_that_is_taken_back_is_a_conflict_that_says_why(scene: Scene) -> None:
    scene.tritons["a"].refuses = {16}
    (answer,) = play(scene, put(SIXTEEN))
    assert "no memory for batches of 16" in assert_error(answer, 409, "conflict")["why"]


def test_the_history_goes_back_to_a_configuration(scene: Scene) -> None:
    page: dict[str, Any] = {}

    async def change(client: Client) -> httpx2.Response:
        answer = await client.put(PATH, json=SIXTEEN)
        page.update(answer.json())
        return await client.put(PATH, json={"fields": {}})

    async def back(client: Client) -> httpx2.Response:
        number = page["etag"].strip('"')
        return await client.post(f"/api/history/{number}/restore?wait=0")

    _, rolled, shown = play(scene, change, back, get)
    assert rolled.status_code in (200, 202), rolled.text
    assert shown.json()["fields"] == {"max_batch_size": 16}
    assert shown.json()["reason"].startswith("restored revision")
