"""`servegate hints set` against an admin API: what is sent, what is told, and exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import application, plane
from cli.commands import Done, servegate
from cli.http_servers import serving_app


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """An admin API with one pool, `default`, of which nothing is set."""
    app = application(plane(tmp_path))
    with serving_app(app) as url:
        yield url


def run(url: str, *words: str) -> Done:
    return servegate("hints", "set", *words, "--admin-url", url)


def stored(url: str, pool: str = "default") -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{url}/api/pools/{pool}", trust_env=False).json()
    return found


def test_what_is_named_is_set_and_all_else_stays(url: str) -> None:
    assert run(url, "default", "--least", "2", "--most", "9").returncode == 0
    done = run(url, "default", "--gpu-budget", "6", "--cost", "0.5", "--to-zero")
    assert done.returncode == 0
    numbers = {"least": 2, "most": 9, "budget": 6, "cost": 0.5}
    rest = {"to_zero": True, "group": "", "schedules": []}
    assert stored(url)["settings"] == numbers | rest
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "updated pool default; active on every worker (generation 1)",
        "bounds now: 0 to 9 replicas, GPUs for 6",
    ]
    etag = stored(url)["etag"]
    done = run(url, "default", "--least", "2")
    assert (done.returncode, stored(url)["etag"]) == (0, etag)
    assert "pool default already has these settings" in done.stderr
    done = run(url, "default", "--gpu-budget", "", "--reason", "a campaign", "--json")
    page = json.loads(done.stdout)
    assert (page["pool"], page["bounds"]["budget"], page["set"]) == ("default", None, True)
    line, *_ = httpx2.get(f"{url}/api/history", trust_env=False).json()
    assert (line["reason"], line["kind"], line["key"]) == ("a campaign", "pool", "default")
    assert run(url, "default", "--clear").returncode == 0
    assert stored(url)["set"] is False


def test_schedules_are_replaced_together_and_an_empty_one_removes_them(url: str) -> None:
    texts = ["mon-fri 08:00-18:00 Europe/Berlin least=4", "00:00-24:00 least=2"]
    done = run(url, "default", "--schedule", texts[0], "--schedule", texts[1])
    assert "schedule 'mon-sun 00:00-24:00 UTC least=2'" in done.stderr
    assert [one["least"] for one in stored(url)["settings"]["schedules"]] == [4, 2]
    run(url, "default", "--schedule", texts[0])
    assert [one["zone"] for one in stored(url)["settings"]["schedules"]] == ["Europe/Berlin"]
    run(url, "default", "--schedule", "")
    assert stored(url)["settings"]["schedules"] == []


def test_a_pool_without_replicas_can_be_set_and_that_is_said(url: str) -> None:
    done = run(url, "l4", "--group", "vision", "--to-zero")
    assert done.returncode == 0 and "pool l4 has no replicas" in done.stderr
    done = run(url, "default", "--group", "vision")
    assert "pools of the group: default, l4" in done.stderr


def test_what_cannot_be_is_refused_before_anything_changes(url: str) -> None:
    for words, told in (
        ([], "no setting was specified"),
        (["--clear", "--least", "2"], "--clear cannot be combined with other settings"),
        (["--gpu-budget", "many"], "--gpu-budget cannot be 'many'"),
        (["--schedule", "mon-fri least=4"], "why: the hours FROM-TO are missing"),
        (["--least", "9"], "'least' is above 'most'"),
    ):
        done = run(url, "default", *words)
        assert done.returncode == 2, done
        assert told in done.stderr and "Traceback" not in done.stderr
        assert stored(url)["set"] is False
    done = run(url, "h100", "--clear")
    assert done.returncode != 0 and "there is no pool 'h100'" in done.stderr
