"""How far a version has come, as record, model and replicas together say it, and what is told."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fake_gateway import FakeGateway, Fault, replica
from refusals import refusal

from serve.cli.channel import Channel, Patience
from serve.cli.client import AdminClient
from serve.cli.output import exit_code
from serve.cli.push_progress import VersionFollower, VersionProgress, conclusion, standing
from serve.cli.talk import LogTalk
from serve.core.errors import (
    CheckFailed,
    Conflict,
    DeadlineExceeded,
    LoadFailed,
    ServegateError,
    TrialFailed,
)
from serve.core.versions import VersionFile

FILE = VersionFile("1/model.onnx", 3, "a" * 64)
UP = [replica("a"), replica("b")]
MODEL = {"name": "m", "pool": "default", "versions": [], "labels": {}, "split": {"2": 1}}


def record(recorded: str = "published", state: str = "", **more: Any) -> dict[str, Any]:
    page = {"model": "m", "version": 3, "recorded": recorded, "state": state or recorded}
    page |= {"replicas": [], "reason": "", "findings": [], "labels": [], "live": False}
    page |= {"times": {"uploaded": 1.0}}
    return page | more


def test_a_published_version_is_ready_when_every_replica_of_its_pool_has_it() -> None:
    for state in ("uploaded", "checked"):
        now = standing(record(state, reason="the disk is full"), None, ())
        assert now == VersionProgress(state, why="the disk is full")
    for state, holders, wanted in (
        ("loading", [], VersionProgress("loading", 0, 2)),
        ("ready", ["a"], VersionProgress("loading", 1, 2)),
        ("ready", ["a", "b"], VersionProgress("ready", 2, 2)),
        ("serving", ["a", "b", "gone"], VersionProgress("ready", 2, 2)),
        ("failed", [], VersionProgress("failed", 0, 2)),
        ("not wanted", [], VersionProgress("not wanted", 0, 2)),
    ):
        assert standing(record("published", state, replicas=holders), MODEL, UP) == wanted
    others = [replica("a"), replica("b", state="lost"), replica("c", pool="gpu")]
    now = standing(record("published", "ready", replicas=["a"]), MODEL, others)
    assert (now, now.is_done) == (VersionProgress("ready", 1, 1), True)
    now = standing(record("published", "ready"), MODEL, [replica("a", state="lost")])
    assert not now.is_done and "no replica of pool 'default' is up" in now.why


def test_labels_and_the_route_are_waited_for() -> None:
    for pending, why in (
        ({"labels": ["candidate"]}, "label 'candidate' not set yet"),
        ({"live": True}, "the route not set yet"),
        ({"labels": ["x"], "reason": "too few"}, "label 'x' not set yet: too few"),
    ):
        now = standing(record("published", "ready", replicas=["a", "b"], **pending), MODEL, UP)
        assert (now.why, now.is_done) == (why, False)


def test_a_version_whose_pool_was_scaled_to_zero_is_not_waited_for() -> None:
    now = standing(record("published", "asleep", reason="it sleeps"), MODEL, ())
    assert (now, now.is_done) == (VersionProgress("asleep"), True)
    waits = standing(record("published", "asleep", labels=["stable"]), MODEL, ())
    assert (waits.is_done, str(waits)) == (True, "asleep: label 'stable' not set yet")
    assert "no replicas until the first call" in conclusion(MODEL, 3, now.replicas)


def test_a_version_that_failed_is_an_error_of_its_own_kind() -> None:
    kinds: list[tuple[dict[str, float], str, type[ServegateError], int]] = [
        ({"uploaded": 1.0}, "two; three", CheckFailed, 7),
        ({"uploaded": 1.0, "checked": 2.0}, "it took too much", TrialFailed, 7),
        ({"uploaded": 1.0}, "an error in Servegate; see its log", ServegateError, 1),
    ]
    for times, reason, kind, status in kinds:
        failed = record("failed", times=times, reason=reason)
        error = refusal(kind, standing, failed, None, ())
        assert (type(error), exit_code(error)) == (kind, status)
        assert reason in error.why


def test_a_version_that_was_put_away_is_not_waited_for() -> None:
    for state in ("retired", "removed"):
        with pytest.raises(Conflict, match=f"is {state}"):
            standing(record(state), None, ())
    failed = record("failed", reason="x", findings=["one", "two"])
    assert refusal(CheckFailed, standing, failed, None, ()).findings == ("one", "two")


def test_the_end_says_what_serves_now() -> None:
    for split, labels, words in (
        ({"2": 1}, {}, "; version 2 still receives the traffic. Try: "),
        ({"3": 7}, {}, "; it receives all traffic"),
        ({"2": 90, "3": 10}, {}, "; it receives 10 % of the traffic"),
        ({}, {}, "; it receives no traffic. Try: "),
        ({"3": 1}, {"new": 3}, ", and m:new points to it; it receives"),
    ):
        said = conclusion(MODEL | {"split": split, "labels": labels}, 3, 2)
        assert said.startswith(f"version 3 is ready on 2 replicas{words}")


# --- following, against the fake gateway -------------------------------------------------------


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway().running() as running:
        running.add(1, "m", [FILE])
        yield running


def followed(gateway: FakeGateway, *looks: dict[str, Any], within: float = 5.0) -> VersionProgress:
    """Follow version 1, which changes with each look."""
    gateway.versions[1].looks += looks

    async def follow() -> VersionProgress:
        async with AdminClient(gateway.url).asynchronous() as client:
            channel = Channel(client, LogTalk(), patience=Patience(0.001, 0.01, 5.0))
            following = VersionFollower(channel, LogTalk(), model="m", number=1, pause=0.001)
            now, _ = await following.until_ready(within)
            return now

    return asyncio.run(follow())


WAY = (
    {"recorded": "uploaded", "state": "uploaded"},
    {"recorded": "checked", "state": "checked"},
    {"recorded": "published", "state": "loading", "replicas": []},
    {"state": "ready", "replicas": ["a"]},
)


def test_a_version_is_followed_until_it_is_ready_everywhere(
    gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    restart = [Fault("GET", status=503), Fault("GET", "/api/replicas", status=502)]
    gateway.faults += restart
    now = followed(gateway, *WAY, {"state": "serving", "replicas": ["a", "b"]})
    assert now.is_done
    assert capsys.readouterr().err.splitlines() == [
        "version 1: uploaded",
        "version 1: checked",
        "version 1: loading (0 of 2 replicas)",
        "version 1: loading (1 of 2 replicas)",
        "version 1: ready (2 of 2 replicas)",
    ]


def test_a_load_that_fails_may_still_succeed_but_not_for_ever(gateway: FakeGateway) -> None:
    failed = {"state": "failed", "replicas": [], "reason": "no memory"}
    right = {"state": "ready", "replicas": ["a", "b"], "reason": ""}
    assert followed(gateway, failed, failed, right).is_done
    gateway.versions[1].looks.clear()
    with pytest.raises(LoadFailed, match="no memory") as raised:
        followed(gateway, failed)
    assert exit_code(raised.value) == 1


def test_who_waits_too_long_hears_how_far_it_is(gateway: FakeGateway) -> None:
    with pytest.raises(DeadlineExceeded) as raised:
        followed(gateway, {"state": "ready", "replicas": ["a"]}, within=0.2)
    assert "loading (1 of 2 replicas)" in raised.value.why
    assert "servegate model show m@1" in raised.value.try_this
    assert exit_code(raised.value) == 8
