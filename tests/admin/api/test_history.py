"""The history over the admin API: lists, single changes, differences, and the way back."""

from pathlib import Path

import httpx2
import pytest
from admin.api.admin_scene import application, assert_error, plane, play, send
from fastapi import FastAPI


def get(app: FastAPI, path: str) -> httpx2.Response:
    return play(app, lambda client: client.get(path))


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    """Revisions 1 and 2 are routes, 3 and 4 labels."""
    made = application(plane(tmp_path))
    for weights in ({"1": 100}, {"1": 60, "2": 40}):
        assert send(made, "PUT", "/api/routes/m", body={"split": weights}).status_code == 200
    for version in (1, 2):
        path = "/api/models/m/labels/stable"
        assert send(made, "PUT", path, body={"version": version}).status_code == 200
    return made


def test_changes_are_listed_with_what_they_changed(app: FastAPI) -> None:
    found = get(app, "/api/history?kind=route").json()
    assert [(one["revision"], one["summary"]) for one in found] == [
        (2, "split.1: 100 → 60; split.2: (nothing) → 40"),
        (1, "split.1: (nothing) → 100"),
    ]
    assert found[0]["key"] == "m" and found[0]["at"] == "2023-11-14T22:13:20Z"
    for query, revisions in (
        ("", [4, 3, 2, 1]),
        ("?limit=2", [4, 3]),
        ("?before=3", [2, 1]),
        ("?kind=label&key=m:stable&before=4", [3]),
        ("?key=x", []),
    ):
        found = get(app, f"/api/history{query}").json()
        assert [one["revision"] for one in found] == revisions
    for query in ("?limit=0", "?limit=1001", "?before=-1", "?limit=x"):
        assert get(app, f"/api/history{query}").status_code == 422
    one = get(app, "/api/history/4").json()
    assert (one["kind"], one["key"]) == ("label", "m:stable")
    assert (one["before"], one["after"]) == ({"version": 1}, {"version": 2})
    diff = get(app, "/api/history/2/diff").json()
    assert diff["changes"][0] == {"field": "split.1", "old": 100, "new": 60}
    back = get(app, "/api/history/2/diff?with=1").json()
    assert back["lines"] == ["split.1: 60 → 100", "split.2: 40 → (nothing)"]


def test_a_route_goes_back_from_the_state_that_was_seen(app: FastAPI) -> None:
    stale = send(app, "POST", "/api/history/1/restore", if_match='"1"')
    assert_error(stale, 412, "precondition_failed")
    answer = send(app, "POST", "/api/history/1/restore", servegate_author="eve")
    assert (answer.status_code, answer.headers["etag"]) == (200, '"5"')
    assert get(app, "/api/routes/m").json()["split"] == {"1": 100}
    assert get(app, "/api/history/5").json()["author"] == "eve"


def test_a_change_is_undone_and_what_differs_is_told(app: FastAPI) -> None:
    path, query = "/api/history/2/undo", {"dry_run": "true"}
    told = play(app, lambda client: client.post(path, params=query)).json()
    lines = ["split.1: 60 → 100", "split.2: 40 → (nothing)"]
    assert (told["changed"], told["lines"]) == (False, lines)
    answer = send(app, "POST", "/api/history/2/undo", servegate_author="eve")
    assert (answer.status_code, answer.headers["etag"]) == (200, '"5"')
    assert (answer.json()["changed"], answer.json()["lines"]) == (True, lines)
    assert get(app, "/api/history/5").json()["reason"] == "undid revision 2"
    assert_error(send(app, "POST", "/api/history/2/undo"), 409, "later_changes")


def test_what_there_is_not_is_unknown(app: FastAPI) -> None:
    for path in ("99", "99/diff", "1/diff?with=99", f"{10**30}"):
        assert_error(get(app, f"/api/history/{path}"), 404, "unknown_revision")
    assert_error(send(app, "POST", "/api/history/99/restore"), 404, "unknown_revision")
