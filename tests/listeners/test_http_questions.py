"""Questions over HTTP: who may ask, what goes on to a Triton, and what every answer says."""

from __future__ import annotations

import dataclasses
import json
from types import MappingProxyType

import pytest
from builders import snapshot, target, view
from listeners.http_fleet import (
    ALL,
    OF_M,
    TWO,
    counted,
    counts,
    get,
    index,
    indexed,
    states,
)
from listeners.http_messages import reply
from listeners.http_replicas import answering
from listeners.http_scene import Scene, in_scene

from serve.core.access import Key, Role
from serve.core.snapshot import Snapshot

KEY, SECRET = Key.create(Role.PREDICTOR, ("n*",))
GUARDED = dataclasses.replace(TWO, keys=MappingProxyType({KEY.id: KEY}), guarded=True)
BEARER = f"Authorization: Bearer {SECRET}"

# --- who asks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v2", ALL, OF_M, "/v2/models/m", "/v2/models/m/config"])
@in_scene(GUARDED)
async def test_without_a_key_nothing_is_told_but_health(scene: Scene, path: str) -> None:
    answer = await scene.ask(get(path))
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert answer.header("www-authenticate") == 'Bearer realm="servegate"'
    assert (await scene.ask(get("/v2/health/live"))).status == 200
    assert scene.a.requests == scene.b.requests == []


@in_scene(GUARDED)
async def test_what_a_key_does_not_name_is_in_no_answer(scene: Scene) -> None:
    scene.a.script = counted(("m", "1", 3))
    scene.b.script = counted(("m", "1", 4), ("m--0a1b2c3d", "2", 5), ("n", "1", 6))
    assert counts(await scene.ask(get(ALL, BEARER))) == [("n", "1", 6)]
    scene.a.script = scene.b.script = indexed(("m--0a1b2c3d", "2", "READY"), ("n", "1", "READY"))
    assert states(await scene.ask(index(BEARER))) == [("n", "1", "READY")]


@pytest.mark.parametrize("part", ["", "/config", "/ready", "/stats", "/versions/1/stats"])
@in_scene(GUARDED)
async def test_a_model_that_a_key_does_not_name_is_told_as_one_that_nobody_has(
    scene: Scene, part: str
) -> None:
    hidden = await scene.ask(get(f"/v2/models/m{part}", BEARER))
    absent = await scene.ask(get(f"/v2/models/nope{part}", BEARER))
    assert hidden.body.replace(b"'m'", b"'nope'") == absent.body
    assert (hidden.status, hidden.code) == (absent.status, absent.code)


@in_scene(GUARDED)
async def test_a_key_of_ours_never_reaches_a_triton(scene: Scene) -> None:
    scene.b.script = counted(("n", "1", 6))
    for path in ("/v2", "/v2/models/n", "/v2/models/n/stats"):
        await scene.ask(get(path, BEARER, "X-Kept: 1"))
    made = [*scene.a.requests, *scene.b.requests]
    assert [one.header("x-kept") for one in made] == ["1"] * 3
    assert all(one.header("authorization") is None for one in made)


@in_scene(TWO)
async def test_another_credential_goes_on_to_triton(scene: Scene) -> None:
    scene.a.script = scene.b.script = indexed()
    await scene.ask(index("Authorization: Basic eDp5"))
    assert [one.requests[0].header("authorization") for one in scene.replicas] == ["Basic eDp5"] * 2


# --- what every answer says -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v2", "/v2/health/live", "/x", "/v2/models/nope", "/v2/logging"])
@in_scene(TWO)
async def test_every_answer_names_its_call_as_the_caller_did_or_anew(
    scene: Scene, path: str
) -> None:
    named = await scene.ask(get(path, "X-Request-Id: mine"))
    other, another = [await scene.ask(get(path)) for _ in range(2)]
    assert named.header("servegate-request-id") == "mine"
    assert other.header("servegate-request-id") != another.header("servegate-request-id")


@in_scene(TWO)
async def test_the_names_of_a_call_go_on_to_triton(scene: Scene) -> None:
    await scene.ask(get("/v2/models/n", "X-Request-Id: mine", "Traceparent: 00-1-2-01"))
    [made] = scene.b.requests
    assert (made.header("x-request-id"), made.header("traceparent")) == ("mine", "00-1-2-01")


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/models/n", "/v2/models/n/infer"])
@in_scene(TWO)
async def test_head_is_refused_without_a_body(scene: Scene, path: str) -> None:
    client = await scene.connect()
    await client.send(get(path, method="HEAD"))
    answer = await client.head()
    assert (answer.status, answer.header("content-length")) == (405, "30")
    assert (await client.ask(get("/v2/health/live"))).status == 200


LISTED: Snapshot = snapshot(view(target(1, "a"), target(3, "b"), target(12, "b")))
METADATA = reply(b'{"name":"m","versions":["1"],"platform":"x"}')


@pytest.mark.parametrize(
    ("part", "versions"), [("", ["1", "3", "12"]), ("/versions/3", ["3"]), ("/versions/01", ["1"])]
)
@in_scene(LISTED)
async def test_metadata_lists_the_versions_that_are_ready_somewhere(
    scene: Scene, part: str, versions: list[str]
) -> None:
    scene.a.script = scene.b.script = answering(METADATA)
    answer = await scene.ask(get(f"/v2/models/m{part}"))
    assert json.loads(answer.body) == {"name": "m", "versions": versions, "platform": "x"}


@in_scene(TWO)
async def test_what_is_logged_of_a_question_is_what_came_and_went(scene: Scene) -> None:
    scene.a.script = scene.b.script = indexed(("m", "1", "READY"))
    answer = await scene.ask(index("X-Request-Id: mine", "Traceparent: 00-1-2-01", body=b"{}"))
    account = scene.log.last
    assert (account.request_id, account.traceparent) == ("mine", "00-1-2-01")
    assert (account.received, account.answered) == (2, len(answer.body))
    assert account.peer.startswith("127.0.0.1:")
