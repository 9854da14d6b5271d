"""Questions over HTTP to all replicas: what is asked of whom, and what their answers become."""

from __future__ import annotations

import json

import pytest
from builders import snapshot
from listeners.http_clients import Client
from listeners.http_fleet import (
    ALL,
    INDEX,
    OF_M,
    TWO,
    breaks,
    counted,
    counts,
    get,
    index,
    indexed,
    says,
    states,
)
from listeners.http_messages import reply, request
from listeners.http_replicas import Script, answering
from listeners.http_scene import Scene, in_scene

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
async def test_statistics_of_a_model_are_asked_of_those_that_hold_it(scene: Scene) -> None:
    scene.a.script = counted(("m", "1", 3))
    scene.b.script = answering(
        reply(b'{"model_stats":[{"name":"m","version":"1","inference_count":4}]}'),
        reply(b'{"model_stats":[{"name":"m--0a1b2c3d","version":"2","inference_count":5}]}'),
    )
    assert counts(await scene.ask(get(OF_M))) == [("m", "1", 7), ("m", "2", 5)]
    assert [call.path for call in scene.a.requests] == [OF_M]
    assert {call.path for call in scene.b.requests} == {OF_M, "/v2/models/m--0a1b2c3d/stats"}


@pytest.mark.parametrize("version", ["2", "02", "stable"])
@in_scene(TWO)
async def test_statistics_of_a_version_are_asked_of_those_that_hold_that_one(
    scene: Scene, version: str
) -> None:
    scene.b.script = counted(("m--0a1b2c3d", "2", 5))
    answer = await scene.ask(get(f"/v2/models/m/versions/{version}/stats"))
    assert counts(answer) == [("m", "2", 5)]
    assert scene.a.requests == []
    assert scene.b.requests[0].path == "/v2/models/m--0a1b2c3d/versions/2/stats"


@in_scene(TWO)
async def test_counters_never_fall_from_one_answer_to_the_next(scene: Scene) -> None:
    told = []
    for a, b in ((3, 4), (0, 5), (1, 0)):
        scene.a.script, scene.b.script = counted(("m", "1", a)), counted(("m", "1", b))
        told += counts(await scene.ask(get(ALL)))
    assert [count for _, _, count in told] == [7, 8, 9]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("nope/stats", 400, "requested model 'nope' is not available"),
        ("m/versions/9/stats", 400, "requested model version is not available for model 'm'"),
        ("m/versions/word/stats", 404, "Request for unknown model: 'm' label 'word' is not found"),
        (f"m/versions/{'9' * 20}/stats", 400, "failed to get model version from specified"),
    ],
)
@in_scene(TWO)
async def test_statistics_of_what_nobody_holds_are_refused_as_triton_refuses_them(
    scene: Scene, path: str, status: int, said: str
) -> None:
    answer = await scene.ask(get(f"/v2/models/{path}"))
    assert answer.status == status
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
async def test_the_index_of_a_repository_is_the_index(scene: Scene) -> None:
    scene.a.script = scene.b.script = indexed(("m", "1", "READY"))
    answer = await scene.ask(request(b"", path="/v2/repository/any/index"))
    assert states(answer) == [("m", "1", "READY")]
    assert scene.a.lines == [f"POST {INDEX} HTTP/1.1"]


@in_scene(TWO)
async def test_an_error_of_all_tritons_is_the_answer(scene: Scene) -> None:
    scene.a.script = scene.b.script = says({"error": "Invalid value."}, status=500)
    answer = await scene.ask(index(body=b"junk"))
    assert (answer.status, json.loads(answer.body)) == (500, {"error": "Invalid value."})
    assert answer.code is None


@in_scene(TWO)
async def test_a_question_that_is_too_large_is_refused(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(index(body=b" " * (1 << 21)))
    assert await _is_too_large(client)
    assert scene.a.requests == scene.b.requests == []


@in_scene(TWO)
async def test_a_question_that_would_be_too_large_is_not_asked_for(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(index("Expect: 100-continue", body=b" " * (1 << 21))[: -(1 << 21)])
    assert await _is_too_large(client)


async def _is_too_large(client: Client) -> bool:
    answer = await client.answer()
    told = (answer.status, answer.code, answer.header("connection"))
    return told == (413, "body_too_large", "close") and await client.rest() == b""


@in_scene(TWO, limits={"body_idle": 0.05})
async def test_a_question_whose_body_does_not_come_is_given_up(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(index(body=b" " * 10)[:-1])
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "too_slow")
    assert await client.rest() == b""
    assert scene.a.requests == scene.b.requests == []


@in_scene(TWO)
async def test_a_client_that_leaves_with_half_a_question_costs_nothing(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(index(body=b" " * 10)[:-1])
    await scene.until_read()
    client.close()
    await scene.until_swept(lambda: not scene.listener.clients)
    assert scene.a.requests == scene.b.requests == []


# --- replicas that do not answer ------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken", [breaks, says({"error": "x"}, status=500), says(7), says([{"version": "1"}])]
)
@in_scene(TWO)
async def test_a_replica_that_does_not_answer_is_left_out_and_named(
    scene: Scene, broken: Script
) -> None:
    scene.a.script, scene.b.script = indexed(("m", "1", "READY")), broken
    answer = await scene.ask(index())
    assert states(answer) == [("m", "1", "READY")]
    assert answer.header("servegate-partial") == "b"


@in_scene(TWO)
async def test_what_a_replica_had_counted_stays_while_it_does_not_answer(scene: Scene) -> None:
    scene.a.script, scene.b.script = counted(("m", "1", 3)), counted(("m", "1", 4))
    assert counts(await scene.ask(get(ALL))) == [("m", "1", 7)]
    scene.b.script = breaks
    answer = await scene.ask(get(ALL))
    assert counts(answer) == [("m", "1", 7)]
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
    scene.a.script = scene.b.script = breaks
    answer = await scene.ask(get(ALL))
    assert (answer.status, answer.code) == (502, "outcome_unknown")
    assert (
        scene.count(
            "servegate_errors_total",
            protocol="http",
            error="outcome_unknown",
            model="",
            version="",
            route="",
        )
        == 1
    )


@in_scene(snapshot())
async def test_without_replicas_there_is_no_answer(scene: Scene) -> None:
    assert (await scene.ask(index())).code == "no_replica"
