"""Pools and their hints over the admin API."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from admin.api.admin_scene import Client, application, assert_error, plane, play, send
from builders import Clock
from fastapi import FastAPI

from serve.admin.api.hints import HintView
from serve.capacity.scaling.signals import (
    Bounds,
    Code,
    ModelSignal,
    PoolSignal,
    Reason,
    ReplicaHint,
)
from serve.control.scaling.board import HintBoard
from serve.control.scaling.told import PoolNumbers

NOW = 1_700_000_000.0
SCHEDULE: dict[str, Any] = {"days": "mon-fri", "from": "08:00", "to": "18:00"}
SCHEDULE |= {"zone": "Europe/Berlin", "least": 4, "most": None}
BODY: dict[str, Any] = {"least": 2, "most": 6, "budget": 5, "to_zero": True}
BODY |= {"group": "vision", "cost": 0.5, "schedules": [SCHEDULE]}


def told(pool: str = "default", desired: int = 3, code: Code = Code.DEMAND) -> PoolNumbers:
    hint = ReplicaHint(pool, desired, 2, 0, float("nan"), (Reason(code, "so much comes"),))
    model = ModelSignal("m", 10.0, 11.0, 0.0, None, 2, limit=0.05)
    signal = PoolSignal(pool, 5.0, 2, 0, (model,), utilization=0.5, faults=("a fault",))
    gpus = {"a/GPU-1": {"source": "triton", "utilization": 0.5}}
    return PoolNumbers(hint, signal, Bounds(1, 8), NOW, "mon-fri", gpus)


def serving(folder: Path, board: HintBoard, wall: Clock | None = None) -> FastAPI:
    return application(plane(folder), board=board, wall=wall or Clock(NOW))


def board() -> HintBoard:
    made = HintBoard()
    made.put([told()])
    return made


def test_a_pool_is_shown_with_all_that_its_hint_was_made_of(tmp_path: Path) -> None:
    shown = HintBoard()
    app = serving(tmp_path, shown)
    assert send(app, "GET", "/api/hints").json() == {"number": 0, "hints": []}
    shown.put([told("large"), told("default")])
    listed = send(app, "GET", "/api/hints").json()
    assert (listed["number"], [one["pool"] for one in listed["hints"]]) == (1, ["default", "large"])
    answer = send(app, "GET", "/api/hints/default").json()
    assert answer == told().to_json() == listed["hints"][0]
    assert set(answer) == set(HintView.model_fields)
    assert (answer["demand"], answer["models"][0]["capacity"]) == (None, None)


def test_the_number_alone_is_answered_only_while_it_may_be_followed(tmp_path: Path) -> None:
    path = "/api/hints/default/desired"
    shown, wall = board(), Clock(NOW)
    app = serving(tmp_path, shown, wall)
    assert send(app, "GET", path).json() == {"desired": 3}
    wall.now += 31
    assert "31 s old" in assert_error(send(app, "GET", path), 503, "unavailable")["why"]
    for unknown in ("/api/hints/other", "/api/hints/other/desired"):
        assert "default" in assert_error(send(app, "GET", unknown), 404, "not_found")["why"]


def test_who_waits_for_a_newer_round_is_answered_with_it(tmp_path: Path) -> None:
    one = board()

    async def scenario(client: Client) -> dict:
        asking = asyncio.create_task(client.get("/api/hints", params={"after": 1}))
        await asyncio.sleep(0)
        one.put([told(desired=5)])
        return (await asking).json()

    answer = play(serving(tmp_path, one), scenario)
    assert (answer["number"], answer["hints"][0]["desired"]) == (2, 5)


def test_who_has_another_round_does_not_wait(tmp_path: Path) -> None:
    app = serving(tmp_path, board())

    async def scenario(client: Client) -> None:
        for number in (0, 700):  # an older one, and one of an earlier control plane
            async with asyncio.timeout(20):  # who waits is answered after 25 s
                answer = await client.get("/api/hints", params={"after": number})
            assert answer.json()["number"] == 1
        assert_error(await client.get("/api/hints", params={"after": "soon"}), 422, "invalid")

    play(app, scenario)


# --- pools ----------------------------------------------------------------------------------------


def get(app: FastAPI, path: str) -> httpx2.Response:
    return send(app, "GET", path)


def test_pools_are_listed_before_anybody_has_set_anything(tmp_path: Path) -> None:
    (only,) = get(application(plane(tmp_path)), "/api/pools").json()
    usual = {"least": 1, "most": 8, "budget": None, "to_zero": False}
    assert only == {
        "pool": "default",
        "set": False,
        "etag": '"0"',
        "bounds": usual | {"schedule": ""},
        "settings": usual | {"group": "", "cost": 1.0, "schedules": []},
        "replicas": ["a", "b"],
        "models": ["m"],
        "beside": ["default"],
    }


def test_what_is_set_is_shown_as_it_was_sent_and_its_page_can_be_sent_again(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
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


def test_settings_that_cannot_be_are_refused_in_a_sentence(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    bodies: list[tuple[Any, str]] = [
        ({"leest": 1}, "leest"),
        ({"least": "1"}, "least"),
        ({"cost": -1}, "0 or more"),
        ([], "valid"),
    ]
    for body, told in bodies:
        answer = send(app, "PUT", "/api/pools/default", body=body)
        assert answer.status_code in (400, 422) and told in answer.json()["error"]
    assert get(app, "/api/pools/default").json()["set"] is False
