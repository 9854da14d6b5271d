"""Questions over HTTP, to all replicas or to one: who may ask, and what is answered."""

from __future__ import annotations

import dataclasses
import json
from types import MappingProxyType
from typing import Any

from builders import snapshot, target, view
from listeners.http_clients import Answer
from listeners.http_messages import get, reply, request
from listeners.http_replicas import Script, answering, breaking_off
from listeners.http_scene import Scene, in_scene

from serve.core.access import ApiKey, Role

OURS = view(target(1, "a", "b"), target(2, "b", physical="m--0a1b2c3d"), labels={"stable": 2})
TWO = snapshot(OURS, view(target(1, "b", model="n"), name="n"), generation=7)
INDEX, ALL, OF_M = "/v2/repository/index", "/v2/models/stats", "/v2/models/m/stats"


def index(*headers: str, body: bytes = b"") -> bytes:
    return request(body, *headers, path=INDEX)


def says(value: Any, status: int = 200) -> Script:
    return answering(reply(json.dumps(value).encode(), status=status))


def counted(*entries: tuple[str, str, int]) -> Script:
    return says({"model_stats": [entry(*one) for one in entries]})


def entry(name: str, version: str, count: int) -> dict[str, Any]:
    return {"name": name, "version": version, "inference_count": count}


def indexed(*entries: tuple[str, str, str]) -> Script:
    return says([{"name": n, "version": v, "state": s} for n, v, s in entries])


def counts(answer: Answer) -> list[tuple[str, str, int]]:
    assert answer.status == 200, answer
    return [tuple(one.values()) for one in json.loads(answer.body)["model_stats"]]


def states(answer: Answer) -> list[tuple[str, ...]]:
    assert answer.status == 200, answer
    return [tuple(one.values()) for one in json.loads(answer.body)]


# --- statistics -----------------------------------------------------------------------------------


@in_scene(TWO)
async def test_statistics_of_all_are_the_sums_of_all_replicas(scene: Scene) -> None:
    scene.a.script = counted(("m", "1", 3))
    scene.b.script = counted(("m", "1", 4), ("m--0a1b2c3d", "2", 5), ("n", "1", 6))
    answer = await scene.ask(get(ALL))
    assert counts(answer) == [("m", "1", 7), ("m", "2", 5), ("n", "1", 6)]
    assert answer.header("servegate-partial") is None
    assert [one.requests[0].path for one in scene.replicas] == [ALL, ALL]


@in_scene(TWO)
async def test_statistics_of_a_model_or_version_are_asked_of_those_that_hold_it(
    scene: Scene,
) -> None:
    theirs = "/v2/models/m--0a1b2c3d"
    scene.b.script = counted(("m--0a1b2c3d", "2", 5))
    for version in ("2", "02", "stable"):
        answer = await scene.ask(get(f"/v2/models/m/versions/{version}/stats"))
        assert counts(answer) == [("m", "2", 5)], version
        assert scene.b.requests[-1].path == f"{theirs}/versions/2/stats"
    assert scene.a.requests == []
    scene.a.script = counted(("m", "1", 3))
    scene.b.script = answering(
        reply(b'{"model_stats":[{"name":"m","version":"1","inference_count":4}]}'),
        reply(b'{"model_stats":[{"name":"m--0a1b2c3d","version":"2","inference_count":5}]}'),
    )
    assert counts(await scene.ask(get(OF_M))) == [("m", "1", 7), ("m", "2", 5)]
    assert [call.path for call in scene.a.requests] == [OF_M]
    assert {call.path for call in scene.b.requests[3:]} == {OF_M, f"{theirs}/stats"}


@in_scene(TWO)
async def test_statistics_of_what_does_not_exist_are_refused_as_by_triton(scene: Scene) -> None:
    for path, status, said in (
        ("nope/stats", 400, "requested model 'nope' is not available"),
        ("m/versions/9/stats", 400, "requested model version is not available for model 'm'"),
        ("m/versions/word/stats", 404, "Request for unknown model: 'm' label 'word' is not found"),
        (f"m/versions/{'9' * 20}/stats", 400, "failed to get model version from specified"),
    ):
        answer = await scene.ask(get(f"/v2/models/{path}"))
        assert answer.status == status, path
        assert json.loads(answer.body)["error"].startswith(said)
        assert answer.header("content-type") == "application/json"


# --- the index ------------------------------------------------------------------------------------


@in_scene(TWO)
async def test_the_index_is_that_of_all_replicas(scene: Scene) -> None:
    scene.a.script = indexed(("m", "1", "LOADING"))
    scene.b.script = indexed(("m", "1", "READY"), ("m--0a1b2c3d", "2", "READY"))
    answer = await scene.ask(index(body=b'{"ready":true}'))
    assert states(answer) == [("m", "1", "READY"), ("m", "2", "READY")]
    for one in scene.replicas:
        assert one.lines == [f"POST {INDEX} HTTP/1.1"]
        assert one.bodies == [b'{"ready":true}']


@in_scene(TWO)
async def test_an_error_of_all_tritons_is_the_answer(scene: Scene) -> None:
    scene.a.script = scene.b.script = says({"error": "Invalid value."}, status=500)
    answer = await scene.ask(index(body=b"junk"))
    assert (answer.status, json.loads(answer.body)) == (500, {"error": "Invalid value."})
    assert answer.code is None


@in_scene(TWO)
async def test_a_question_that_is_or_would_be_too_large_is_refused(scene: Scene) -> None:
    size = 1 << 21
    announced = index("Expect: 100-continue", body=b" " * size)[:-size]
    for data in (index(body=b" " * size), announced):
        client = await scene.connect()
        await client.send(data)
        answer = await client.answer()
        assert (answer.status, answer.code) == (413, "body_too_large")
        assert answer.header("connection") == "close"
        assert await client.rest() == b""
    assert scene.a.requests == scene.b.requests == []


@in_scene(TWO, limits={"body_idle": 0.05})
async def test_a_question_whose_body_does_not_come_is_given_up(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(index(body=b" " * 10)[:-1])
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "too_slow")
    assert await client.rest() == b""
    assert scene.a.requests == scene.b.requests == []


# --- replicas that do not answer ------------------------------------------------------------------


@in_scene(TWO)
async def test_a_replica_that_does_not_answer_is_left_out_and_named(scene: Scene) -> None:
    scene.a.script = indexed(("m", "1", "READY"))
    for broken in (
        breaking_off(resets=True),
        says({"error": "x"}, status=500),
        says(7),
        says([{"version": "1"}]),
    ):
        scene.b.script = broken
        answer = await scene.ask(index())
        assert states(answer) == [("m", "1", "READY")]
        assert answer.header("servegate-partial") == "b"


@in_scene(TWO, limits={"call": 0.05})
async def test_a_replica_that_is_silent_is_not_waited_for_any_longer(scene: Scene) -> None:
    scene.a.script = indexed(("m", "1", "READY"))
    hand = scene.b.by_hand()
    answer = await scene.ask(index())
    hand.done_all()
    assert states(answer) == [("m", "1", "READY")]
    assert answer.header("servegate-partial") == "b"


@in_scene(TWO)
async def test_when_nobody_answers_that_is_the_answer(scene: Scene) -> None:
    scene.a.script = scene.b.script = breaking_off(resets=True)
    answer = await scene.ask(get(ALL))
    assert (answer.status, answer.code) == (502, "outcome_unknown")
    labels = dict.fromkeys(("model", "version", "route"), "") | {"protocol": "http"}
    assert scene.count("servegate_errors_total", error="outcome_unknown", **labels) == 1
    scene.plane.live.swap(snapshot(generation=8))
    assert (await scene.ask(index())).code == "no_replica"


KEY, SECRET = ApiKey.create(Role.PREDICTOR, ("n*",))
GUARDED = dataclasses.replace(TWO, keys=MappingProxyType({KEY.id: KEY}), guarded=True)
BEARER = f"Authorization: Bearer {SECRET}"

# --- who asks -------------------------------------------------------------------------------------


@in_scene(GUARDED)
async def test_without_a_key_nothing_is_answered_but_health(scene: Scene) -> None:
    for path in ("/v2", ALL, OF_M, "/v2/models/m", "/v2/models/m/config"):
        answer = await scene.ask(get(path))
        assert (answer.status, answer.code) == (401, "unauthenticated"), path
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


@in_scene(GUARDED)
async def test_a_model_that_a_key_does_not_name_is_like_one_not_there(scene: Scene) -> None:
    for part in ("", "/config", "/ready", "/stats", "/versions/1/stats", "/infer", "/generate"):
        path = f"/v2/models/%s{part}"
        is_call = part in ("/infer", "/generate")
        heard = []
        for name in ("m", "nope"):
            asked = (
                request(b"{}", BEARER, path=path % name) if is_call else get(path % name, BEARER)
            )
            answer = await scene.ask(asked)
            heard.append((answer.status, answer.code, answer.body.replace(b"'m'", b"'nope'")))
        assert heard[0] == heard[1], part
    assert scene.a.requests == scene.b.requests == []


# --- what every answer says -----------------------------------------------------------------------


@in_scene(TWO)
async def test_head_is_refused_without_a_body(scene: Scene) -> None:
    for path in ("/v2/health/live", "/v2/models/n", "/v2/models/n/infer"):
        client = await scene.connect()
        await client.send(get(path, method="HEAD"))
        answer = await client.head()
        assert (answer.status, answer.header("content-length")) == (405, "30"), path
        assert (await client.ask(get("/v2/health/live"))).status == 200


@in_scene(snapshot(view(target(1, "a"), target(3, "b"), target(12, "b"))))
async def test_metadata_lists_the_versions_that_are_ready_somewhere(scene: Scene) -> None:
    document = b'{"name":"m","versions":["1"],"platform":"x"}'
    scene.a.script = scene.b.script = answering(reply(document))
    for part, versions in (
        ("", ["1", "3", "12"]),
        ("/versions/3", ["3"]),
        ("/versions/01", ["1"]),
    ):
        answer = await scene.ask(get(f"/v2/models/m{part}"))
        assert json.loads(answer.body) == {"name": "m", "versions": versions, "platform": "x"}


@in_scene(GUARDED)
async def test_what_names_a_call_is_logged_and_goes_on_to_triton_and_its_key_does_not(
    scene: Scene,
) -> None:
    scene.b.script = says([])
    names = ("X-Request-Id: mine", "Traceparent: 00-1-2-01")
    for asked, size in (
        (get("/v2/models/n", BEARER, *names), 0),
        (get("/v2/models/n/stats", BEARER, *names), 0),
        (index(BEARER, *names, body=b"{}"), 2),
    ):
        answer = await scene.ask(asked)
        made, account = scene.b.requests[-1], scene.log.last
        assert (made.header("x-request-id"), made.header("traceparent")) == ("mine", "00-1-2-01")
        assert made.header("authorization") is None
        assert answer.header("servegate-request-id") == account.request_id == "mine"
        assert account.traceparent == "00-1-2-01"
        assert (account.received, account.answered) == (size, len(answer.body))
        assert account.peer.startswith("127.0.0.1:")
