"""Hints over the admin API."""

import asyncio
from pathlib import Path

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


def told(pool: str = "default", desired: int = 3, code: Code = Code.DEMAND) -> PoolNumbers:
    hint = ReplicaHint(pool, desired, 2, 0, float("nan"), (Reason(code, "so much comes"),))
    model = ModelSignal("m", 10.0, 11.0, 0.0, None, 2, limit=0.05)
    signal = PoolSignal(pool, 5.0, 2, 0, (model,), utilization=0.5, faults=("a fault",))
    gpus = {"a/GPU-1": {"source": "triton", "utilization": 0.5}}
    return PoolNumbers(hint, signal, Bounds(1, 8), NOW, "mon-fri", gpus)


def serving(folder: Path, board: HintBoard, wall: Clock | None = None) -> FastAPI:
    return application(plane(folder), board=board, wall=wall or Clock(NOW))


def board(*those: PoolNumbers) -> HintBoard:
    made = HintBoard()
    made.put(those or (told(),))
    return made


def test_all_pools_are_listed_by_name(tmp_path: Path) -> None:
    shown = HintBoard()
    app = serving(tmp_path, shown)
    assert send(app, "GET", "/api/hints").json() == {"number": 0, "hints": []}
    shown.put([told("large"), told("default")])
    answer = send(app, "GET", "/api/hints").json()
    assert answer["number"] == 1
    assert [one["pool"] for one in answer["hints"]] == ["default", "large"]


def test_a_pool_is_shown_with_all_that_its_hint_was_made_of(tmp_path: Path) -> None:
    answer = send(serving(tmp_path, board()), "GET", "/api/hints/default").json()
    assert answer == told().to_json()
    assert set(answer) == set(HintView.model_fields)
    assert (answer["demand"], answer["models"][0]["capacity"]) == (None, None)


def test_the_number_alone_is_answered_only_while_it_may_be_followed(tmp_path: Path) -> None:
    path = "/api/hints/default/desired"
    shown, wall = board(), Clock(NOW)
    app = serving(tmp_path, shown, wall)
    assert send(app, "GET", path).json() == {"desired": 3}
    for code in (Code.STALE, Code.INVALID, Code.RESTARTED):
        shown.put([told(code=code)])
        answer = send(app, "GET", path)
        assert "so much comes" in assert_error(answer, 503, "unavailable")["why"]
    shown.put([told()])
    wall.now += 31
    assert "31 s old" in assert_error(send(app, "GET", path), 503, "unavailable")["why"]


def test_a_pool_without_a_hint_is_not_found(tmp_path: Path) -> None:
    app = serving(tmp_path, board())
    for path in ("/api/hints/other", "/api/hints/other/desired"):
        answer = send(app, "GET", path)
        assert "default" in assert_error(answer, 404, "not_found")["why"]


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
            answer = await client.get("/api/hints", params={"after": number})
            assert answer.json()["number"] == 1
        assert_error(await client.get("/api/hints", params={"after": "soon"}), 422, "invalid")

    play(app, scenario)
