"""`servegate hints set` against an admin API: what is sent, what is told, and exit codes."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from builders import until
from cli.commands import Done, servegate
from listeners.history_scene import history_scene


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """An admin API with one pool, `default`, of which nothing is set."""
    _, app = history_scene(tmp_path)
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    asyncio.run(until(lambda: server.started))
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def run(url: str, *words: str) -> Done:
    return servegate("hints", "set", *words, "--admin-url", url)


def stored(url: str, pool: str = "default") -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{url}/api/pools/{pool}", trust_env=False).json()
    return found


def test_what_is_named_is_set_and_all_else_stays(url: str) -> None:
    assert run(url, "default", "--least", "2", "--most", "9").returncode == 0
    done = run(url, "default", "--gpu-budget", "6", "--cost", "0.5", "--to-zero")
    assert done.returncode == 0
    settings = stored(url)["settings"]
    assert settings == {
        "least": 2,
        "most": 9,
        "budget": 6,
        "to_zero": True,
        "group": "",
        "cost": 0.5,
        "schedules": [],
    }
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "pool default is set: in force on every worker (generation 1)",
        "it may have 0 to 9 replicas now, with GPUs for 6",
    ]


def test_schedules_are_replaced_together_and_an_empty_one_removes_them(url: str) -> None:
    texts = ["mon-fri 08:00-18:00 Europe/Berlin least=4", "00:00-24:00 least=2"]
    done = run(url, "default", "--schedule", texts[0], "--schedule", texts[1])
    assert "by 'mon-sun 00:00-24:00 UTC least=2'" in done.stderr
    assert [one["least"] for one in stored(url)["settings"]["schedules"]] == [4, 2]
    run(url, "default", "--schedule", texts[0])
    assert [one["zone"] for one in stored(url)["settings"]["schedules"]] == ["Europe/Berlin"]
    run(url, "default", "--schedule", "")
    assert stored(url)["settings"]["schedules"] == []


def test_an_empty_text_takes_the_budget_and_the_group_away(url: str) -> None:
    run(url, "default", "--gpu-budget", "6", "--group", "g")
    run(url, "default", "--gpu-budget", "", "--group", "")
    assert (stored(url)["settings"]["budget"], stored(url)["settings"]["group"]) == (None, "")


def test_a_pool_without_replicas_can_be_set_and_that_is_said(url: str) -> None:
    done = run(url, "l4", "--group", "vision", "--to-zero")
    assert done.returncode == 0 and "no replica is in pool l4" in done.stderr
    done = run(url, "default", "--group", "vision")
    assert "pools of its group: default, l4" in done.stderr


def test_what_is_so_already_is_not_written_again(url: str) -> None:
    run(url, "default", "--least", "2")
    etag = stored(url)["etag"]
    done = run(url, "default", "--least", "2")
    assert (done.returncode, stored(url)["etag"]) == (0, etag)
    assert "pool default is so already" in done.stderr


def test_all_can_be_forgotten(url: str) -> None:
    run(url, "default", "--least", "2")
    assert run(url, "default", "--clear").returncode == 0
    assert stored(url)["set"] is False


def test_json_tells_the_pool_as_it_is_now(url: str) -> None:
    page = json.loads(run(url, "default", "--least", "2", "--json").stdout)
    assert (page["pool"], page["bounds"]["least"], page["set"]) == ("default", 2, True)


def test_the_reason_is_written_beside_the_change(url: str) -> None:
    run(url, "default", "--least", "2", "--reason", "a campaign")
    (line,) = httpx2.get(f"{url}/api/history", trust_env=False).json()
    assert (line["reason"], line["kind"], line["key"]) == ("a campaign", "pool", "default")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing is to be set"),
        (["--clear", "--least", "2"], "--clear stands alone"),
        (["--gpu-budget", "many"], "'many' is no number of replicas"),
        (["--schedule", "mon-fri least=4"], "why: it has no hours: FROM-TO"),
        (["--schedule", "08:00-18:00 Mars least=4"], "'Mars' is no time zone"),
        (["--least", "9"], "least is above most"),
        (["--group", "a b"], "cannot be the name of a group"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    url: str, words: list[str], told: str
) -> None:
    done = run(url, "default", *words)
    assert done.returncode == 2, done
    assert told in done.stderr and "Traceback" not in done.stderr
    assert stored(url)["set"] is False


def test_clearing_a_pool_that_nobody_knows_is_told(url: str) -> None:
    done = run(url, "h100", "--clear")
    assert done.returncode != 0 and "there is no pool 'h100'" in done.stderr
