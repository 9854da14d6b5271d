"""Hints over the admin API."""

import asyncio
import dataclasses
from pathlib import Path

import pytest
from fastapi import FastAPI
from listeners.admin_scene import Client, application, assert_error, plane, play, send

from serve.capacity.scaling.signals import Bounds, Code, Hint, ModelSignal, PoolSignal, Reason
from serve.control.scaling.board import Board
from serve.control.scaling.told import Told
from serve.listeners.admin.hints import HintView

NOW = 1_700_000_000.0


def told(pool: str = "default", desired: int = 3, code: Code = Code.DEMAND) -> Told:
    hint = Hint(pool, desired, 2, 0, float("nan"), (Reason(code, "so much comes"),))
    model = ModelSignal("m", 10.0, 11.0, 0.0, None, 2, limit=0.05)
    signal = PoolSignal(pool, 5.0, 2, 0, (model,), utilization=0.5, faults=("a fault",))
    gpus = {"a/GPU-1": {"source": "triton", "utilization": 0.5}}
    return Told(hint, signal, Bounds(1, 8), NOW, "mon-fri", gpus)


def serving(folder: Path, board: Board, *, at: float = NOW) -> FastAPI:
    app = application(plane(folder))
    app.state.control = dataclasses.replace(app.state.control, board=board, wall=lambda: at)
    return app


def board(*those: Told) -> Board:
    made = Board()
    made.put(those or (told(),))
    return made


def test_all_pools_are_listed_by_name(tmp_path: Path) -> None:
    app = serving(tmp_path, board(told("large"), told("default")))
    answer = send(app, "GET", "/api/hints").json()
    assert answer["number"] == 1
    assert [one["pool"] for one in answer["hints"]] == ["default", "large"]


def test_before_the_first_round_there_is_none(tmp_path: Path) -> None:
    assert send(serving(tmp_path, Board()), "GET", "/api/hints").json() == {
        "number": 0,
        "hints": [],
    }


def test_a_pool_is_shown_with_all_that_its_hint_was_made_of(tmp_path: Path) -> None:
    answer = send(serving(tmp_path, board()), "GET", "/api/hints/default").json()
    assert answer == told().to_json()
    assert set(answer) == set(HintView.model_fields)
    assert (answer["demand"], answer["models"][0]["capacity"]) == (None, None)


def test_the_number_alone_is_for_those_who_read_a_single_one(tmp_path: Path) -> None:
    answer = send(serving(tmp_path, board()), "GET", "/api/hints/default/desired")
    assert answer.json() == {"desired": 3}


@pytest.mark.parametrize("code", [Code.STALE, Code.INVALID, Code.RESTARTED])
def test_who_follows_the_number_alone_is_told_none_in_a_hold(tmp_path: Path, code: Code) -> None:
    held = serving(tmp_path, board(told(code=code)))
    answer = send(held, "GET", "/api/hints/default/desired")
    assert "so much comes" in assert_error(answer, 503, "unavailable")["why"]


def test_who_follows_the_number_alone_is_not_told_an_old_one(tmp_path: Path) -> None:
    answer = send(serving(tmp_path, board(), at=NOW + 31), "GET", "/api/hints/default/desired")
    assert "31 s ago" in assert_error(answer, 503, "unavailable")["why"]


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


def test_who_has_an_older_round_does_not_wait(tmp_path: Path) -> None:
    async def scenario(client: Client) -> dict:
        return (await client.get("/api/hints", params={"after": 0})).json()

    assert play(serving(tmp_path, board()), scenario)["number"] == 1


def test_who_has_a_number_of_an_earlier_control_plane_does_not_wait(tmp_path: Path) -> None:
    async def scenario(client: Client) -> dict:
        return (await client.get("/api/hints", params={"after": 700})).json()

    assert play(serving(tmp_path, board()), scenario)["number"] == 1


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    async def scenario(client: Client):
        return await client.get("/api/hints", params={"after": "soon"})

    assert_error(play(serving(tmp_path, board()), scenario), 422, "invalid")
