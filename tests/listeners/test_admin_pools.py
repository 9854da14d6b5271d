"""Pools over the admin API: what is shown, what is set, and what is refused."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from listeners.admin_scene import assert_error, send
from listeners.history_scene import history_scene

BODY: dict[str, Any] = {
    "least": 2,
    "most": 6,
    "budget": 5,
    "to_zero": True,
    "group": "vision",
    "cost": 0.5,
    "schedules": [
        {
            "days": "mon-fri",
            "from": "08:00",
            "to": "18:00",
            "zone": "Europe/Berlin",
            "least": 4,
            "most": None,
        }
    ],
}


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return history_scene(tmp_path)[1]


def get(app: FastAPI, path: str) -> httpx2.Response:
    return send(app, "GET", path)


def test_pools_are_listed_before_anybody_has_set_anything(app: FastAPI) -> None:
    (only,) = get(app, "/api/pools").json()
    assert only == {
        "pool": "default",
        "set": False,
        "etag": '"0"',
        "settings": {
            "least": 1,
            "most": 8,
            "budget": None,
            "to_zero": False,
            "group": "",
            "cost": 1.0,
            "schedules": [],
        },
        "bounds": {"least": 1, "most": 8, "budget": None, "to_zero": False, "schedule": ""},
        "replicas": ["a", "b"],
        "models": ["m"],
        "beside": ["default"],
    }


def test_what_is_set_is_shown_as_it_was_sent_and_its_page_can_be_sent_again(app: FastAPI) -> None:
    answer = send(app, "PUT", "/api/pools/default", body=BODY)
    assert answer.status_code == 200 and answer.json()["generation"] > 0
    shown = get(app, "/api/pools/default")
    assert shown.headers["etag"] == answer.headers["etag"] == shown.json()["etag"]
    assert shown.json()["settings"] == BODY and shown.json()["set"]
    assert shown.json()["bounds"]["least"] == 2  # it is evening
    again = send(app, "PUT", "/api/pools/default", body=shown.json()["settings"])
    assert again.status_code == 200


def test_who_has_read_something_else_changes_nothing(app: FastAPI) -> None:
    send(app, "PUT", "/api/pools/default", body={"most": 3}, if_match='"0"')
    for method in ("PUT", "DELETE"):
        answer = send(app, method, "/api/pools/default", body={"most": 4}, if_match='"0"')
        assert_error(answer, 412, "precondition_failed")
    assert get(app, "/api/pools/default").json()["settings"]["most"] == 3


def test_what_was_set_is_in_the_history_and_can_be_rolled_back_to(app: FastAPI) -> None:
    for most in (3, 4):
        send(app, "PUT", "/api/pools/default", body={"most": most}, servegate_author="ada")
    newest, first = get(app, "/api/history?kind=pool").json()
    assert (newest["author"], newest["key"], newest["summary"]) == ("ada", "default", "most: 3 → 4")
    path = f"/api/history/{first['revision']}/restore"
    assert send(app, "POST", path).status_code == 200
    assert get(app, "/api/pools/default").json()["settings"]["most"] == 3


def test_what_was_set_can_be_forgotten(app: FastAPI) -> None:
    send(app, "PUT", "/api/pools/default", body=BODY)
    assert send(app, "DELETE", "/api/pools/default").status_code == 200
    assert get(app, "/api/pools/default").json()["set"] is False


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"leest": 1}, "leest"),
        ({"least": "1"}, "least"),
        ({"least": 0}, "least cannot be 0"),
        ({"least": 9}, "least is above most"),
        ({"to_zero": "yes"}, "to_zero"),
        ({"cost": -1}, "0 or more"),
        ({"schedules": [{"from": "08:00", "least": 1}]}, "to"),
        ({"schedules": [{"from": "8", "to": "18:00", "least": 1}]}, "'8' is no time of day"),
        ({"schedules": [{**BODY["schedules"][0], "zone": "Mars"}]}, "no time zone"),
        ([], "valid"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(app: FastAPI, body: Any, told: str) -> None:
    answer = send(app, "PUT", "/api/pools/default", body=body)
    assert answer.status_code in (400, 422)
    assert told in answer.json()["error"]
    assert get(app, "/api/pools/default").json()["set"] is False


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_pool_that_nobody_knows_is_not_found(app: FastAPI, method: str) -> None:
    assert_error(send(app, method, "/api/pools/h100"), 404, "not_found")


def test_a_pool_that_has_no_replica_yet_can_be_set(app: FastAPI) -> None:
    assert send(app, "PUT", "/api/pools/h100", body={"to_zero": True}).status_code == 200
    assert [one["pool"] for one in get(app, "/api/pools").json()] == ["default", "h100"]
    assert_error(send(app, "PUT", "/api/pools/h 100", body={}), 422, "invalid")


def test_the_models_of_a_group_are_told_with_all_its_pools(app: FastAPI) -> None:
    for pool in ("default", "h100"):
        send(app, "PUT", f"/api/pools/{pool}", body={"group": "g"})
    assert get(app, "/api/pools/h100").json()["models"] == ["m"]
    assert get(app, "/api/pools/h100").json()["beside"] == ["default", "h100"]
