"""Pools over the admin API: what is shown, what is set, and what is refused."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import application, assert_error, plane, send
from fastapi import FastAPI

SCHEDULE: dict[str, Any] = {
    "days": "mon-fri",
    "from": "08:00",
    "to": "18:00",
    "zone": "Europe/Berlin",
}
SCHEDULE |= {"least": 4, "most": None}
BODY: dict[str, Any] = {
    "least": 2,
    "most": 6,
    "budget": 5,
    "to_zero": True,
    "group": "vision",
    "cost": 0.5,
    "schedules": [SCHEDULE],
}


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return application(plane(tmp_path))


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
    for method in ("PUT", "DELETE"):
        stale = send(app, method, "/api/pools/default", body={"most": 4}, if_match='"0"')
        assert_error(stale, 412, "precondition_failed")
    assert_error(send(app, "PUT", "/api/pools/h 100", body={}), 422, "invalid")
    assert_error(get(app, "/api/pools/h100"), 404, "not_found")
    assert send(app, "DELETE", "/api/pools/default").status_code == 200
    assert get(app, "/api/pools/default").json()["set"] is False


def test_what_cannot_be_is_refused_in_a_sentence(app: FastAPI) -> None:
    bodies: list[tuple[Any, str]] = [
        ({"leest": 1}, "leest"),
        ({"least": "1"}, "least"),
        ({"least": 0}, "'least' cannot be 0"),
        ({"cost": -1}, "0 or more"),
        ({"schedules": [{"from": "08:00", "least": 1}]}, "to"),
        ([], "valid"),
    ]
    for body, told in bodies:
        answer = send(app, "PUT", "/api/pools/default", body=body)
        assert answer.status_code in (400, 422) and told in answer.json()["error"]
    assert get(app, "/api/pools/default").json()["set"] is False
