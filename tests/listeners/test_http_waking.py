"""Calls over HTTP that wait: for a pool that sleeps, or for a model that is not loaded yet."""

import asyncio
import dataclasses
import json

import pytest
from builders import snapshot, target, until, view
from listeners.http_clients import Client
from listeners.http_messages import CHUNKED, GOOD, HEAD, MIB, chunk, get, reply, request
from listeners.http_replicas import Received, Script, answering
from listeners.http_scene import (
    ASLEEP,
    AWAKE,
    SLEEPING,
    UNKNOWN,
    Scene,
    in_scene,
    pass_waiting_time,
    waiting,
)

from serve.listeners.http.predict_call import KEPT
from serve.triton.http_connection import HIGH_WATER

RENAMED = snapshot(view(target(1, "a", physical="m--01234567")))
SEQUENCES = dataclasses.replace(SLEEPING, sequences=True)


async def asleep(scene: Scene, data: bytes | None = None) -> Client:
    """A client whose call waits."""
    client = await scene.connect()
    await client.send(request() if data is None else data)
    await waiting(scene)
    return client


@in_scene(ASLEEP)
async def test_calls_wait_until_their_pool_has_a_replica(scene: Scene) -> None:
    scene.a.script = answering(reply(GOOD.replace(b'"m"', b'"m--01234567"')))
    clients = [await scene.connect() for _ in range(3)]
    for one in clients:
        await one.send(request(b"first") + request(b"second"))
    await waiting(scene, 3)
    assert scene.a.requests == [] and scene.listener.held >= len(b"first") * 3
    scene.plane.wake(RENAMED)
    for one in clients:
        for _ in range(2):
            answer = await one.answer()
            assert (answer.status, answer.body) == (200, GOOD)
            assert answer.header("servegate-version") == "1; by=latest; generation=2"
    assert sorted(scene.a.bodies) == [b"first"] * 3 + [b"second"] * 3
    assert scene.a.requests[0].path == "/v2/models/m--01234567/versions/1/infer"


@pytest.mark.parametrize("pieces", [1, 7])
@in_scene(ASLEEP)
async def test_a_body_that_comes_while_the_call_waits_goes_on_as_it_came(
    scene: Scene, pieces: int
) -> None:
    client = await asleep(scene, HEAD + b"Content-Length: 300014\r\n\r\n" + bytes(300_000))
    await scene.feed(client, b"0123456789abcd", -(-14 // pieces))
    scene.plane.wake(AWAKE)
    assert (await client.answer()).status == 200
    assert scene.a.bodies == [bytes(300_000) + b"0123456789abcd"]
    assert scene.a.requests[0].header("content-length") == "300014"


@in_scene(ASLEEP)
async def test_a_body_that_ends_after_the_pool_is_awake_goes_on_whole(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await asleep(scene, CHUNKED + chunk(bytes(300_000)))
    await client.send(chunk(b"cd"))
    await scene.until_read()
    scene.plane.wake(AWAKE)
    call = await hand.call()
    await client.send(chunk(b"ef") + b"0\r\n\r\n")
    assert (await call.read()).body == bytes(300_000) + b"cdef"
    call.write(reply())
    hand.done(call)
    assert (await client.answer()).status == 200


@in_scene(ASLEEP)
async def test_a_client_with_a_large_body_waits_as_well(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % (8 * MIB))
    sending = asyncio.ensure_future(client.send(bytes(8 * MIB)))
    await until(lambda: any(one.is_request_paused for one in scene.listener.clients))
    assert scene.listener.held <= 2 * HIGH_WATER + (1 << 18)
    scene.plane.wake(AWAKE)
    await sending
    assert (await client.answer()).status == 200
    assert [call.size for call in scene.a.requests] == [8 * MIB]


@in_scene(ASLEEP)
async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert (await client.head()).status == 100
    await client.send(b"abc")
    await waiting(scene)
    scene.plane.wake(AWAKE)
    assert (await client.answer()).status == 200
    assert scene.a.bodies == [b"abc"]


@in_scene(ASLEEP)
async def test_a_call_whose_pool_does_not_wake_is_told_when_to_try_again(scene: Scene) -> None:
    client = await asleep(scene)
    pass_waiting_time(scene)
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "asleep")
    assert int(answer.header("retry-after") or 0) > 1
    said = json.loads(answer.body)["error"]
    assert said.startswith("no replica is ready for model 'm': its pool did not start within 10 s")
    await client.send(request())  # the connection goes on
    await waiting(scene)
    scene.plane.wake(AWAKE)
    assert (await client.answer()).status == 200
    assert scene.log.lines[0][1] == "asleep"


@in_scene(ASLEEP)
async def test_an_incomplete_body_is_read_no_further_when_time_is_over(scene: Scene) -> None:
    client = await asleep(scene, HEAD + b"Content-Length: 600000\r\n\r\n" + bytes(300_000))
    pass_waiting_time(scene)
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "asleep")
    assert await client.rest() == b""


@in_scene(snapshot(SLEEPING, view(target(1, "a", model="n"), name="n")), limits={"in_flight": 200})
async def test_calls_that_wait_leave_room_for_the_bodies_of_others(scene: Scene) -> None:
    for _ in range(2):
        await (await scene.connect()).send(request(bytes(60)))
    await waiting(scene, 2)
    answer = await scene.ask(request(bytes(60)))
    assert (answer.status, answer.code) == (429, "no_room")
    assert (await scene.ask(request(bytes(60), path="/v2/models/n/infer"))).status == 200
    assert scene.plane.waking.waiting == {"m": 2}


@pytest.mark.parametrize("how", ["closes", "resets"])
@in_scene(ASLEEP)
async def test_a_client_that_leaves_does_not_reach_a_replica(scene: Scene, how: str) -> None:
    client = await asleep(scene)
    client.close() if how == "closes" else client.reset()
    await waiting(scene, 0)
    scene.plane.wake(AWAKE)
    assert (await scene.ask(request(b"other"))).status == 200
    assert scene.a.bodies == [b"other"]
    assert scene.log.lines[0][1] == "client_left"


@in_scene(snapshot(SEQUENCES, replicas=("a",)))
async def test_a_call_of_a_sequence_waits_once_its_identity_is_known(scene: Scene) -> None:
    body = json.dumps({"parameters": {"sequence_id": 7}, "inputs": []}).encode()
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:9])
    await scene.until_read()
    assert scene.plane.waking.waiting == {}
    await client.send(body[9:])
    await waiting(scene)
    scene.plane.wake(snapshot(view(target(1, "a"), sequences=True)))
    assert (await client.answer()).status == 200
    assert scene.a.bodies == [body]


# --- who does not wait ----------------------------------------------------------------------------


@in_scene(ASLEEP)
async def test_questions_for_readiness_wake_no_pool_and_others_wait(scene: Scene) -> None:
    assert (await scene.ask(get("/v2/health/ready"))).status == 200
    assert (await scene.ask(get("/v2/models/m/ready"))).status == 400
    assert scene.plane.waking.waiting == {} and scene.plane.news == 0
    scene.a.script = answering(reply(b'{"name":"m","versions":["1"]}'))
    late = await asleep(scene, get("/v2/models/m"))
    pass_waiting_time(scene)
    assert (await late.answer()).status == 503
    client = await asleep(scene, get("/v2/models/m"))
    scene.plane.wake(AWAKE)
    assert json.loads((await client.answer()).body)["versions"] == ["1"]


# --- a replica that has not loaded the model which the snapshot says it holds ---------------------
UNLOADED = reply(
    b'{"error":"Request for unknown model: \'m\' version 1 is not at ready state"}', status=503
)


def loads_later(scene: Scene, then: Script, unknown: bytes = UNKNOWN) -> Script:
    """A replica that knows the model once it was asked for it."""

    async def script(call: Received) -> None:
        is_first = len(scene.replicas[0].requests) == 1
        await (answering(unknown) if is_first else then)(call)

    return script


@pytest.mark.parametrize("unknown", [UNKNOWN, UNLOADED], ids=["unknown", "unloaded"])
@in_scene(RENAMED)
async def test_a_call_waits_until_its_only_replica_has_loaded_the_model(
    scene: Scene, unknown: bytes
) -> None:
    named = reply(GOOD.replace(b'"m"', b'"m--01234567"'))
    said = unknown.partition(b"\r\n\r\n")[2].replace(b"'m'", b"'m--01234567'")
    refused = reply(said, status=int(unknown.split()[1]))
    scene.a.script = loads_later(scene, answering(named), refused)
    client = await asleep(scene, request(b'{"x":1}'))
    scene.plane.gateway.sweep()
    answer = await client.answer()
    assert (answer.status, answer.body) == (200, GOOD)
    assert scene.a.bodies == [b'{"x":1}'] * 2
    assert (await client.ask(request())).status == 200  # the connection goes on


@in_scene()
async def test_a_call_whose_model_is_not_loaded_is_told_when_to_try_again(scene: Scene) -> None:
    scene.a.script = answering(UNKNOWN)
    client = await asleep(scene)
    pass_waiting_time(scene, 1)
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "not_loaded")
    assert answer.header("retry-after") == "1"
    scene.a.script = answering(reply(GOOD))
    assert (await client.ask(request())).status == 200


@pytest.mark.parametrize("size", [KEPT + 1, 4 << 20])
@in_scene()
async def test_a_call_that_is_too_large_to_be_kept_does_not_wait(scene: Scene, size: int) -> None:
    scene.a.script = answering(UNKNOWN)
    answer = await scene.ask(request(bytes(size)))
    assert (answer.status, answer.code) == (503, "not_loaded")
    assert scene.plane.waking.count == 0


@in_scene()
async def test_a_client_that_leaves_meanwhile_is_forgotten(scene: Scene) -> None:
    scene.a.script = answering(UNKNOWN)
    client = await asleep(scene)
    client.close()
    await waiting(scene, 0)
    assert len(scene.a.requests) == 1


@in_scene(2)
async def test_a_question_goes_to_another_replica(scene: Scene) -> None:
    scene.a.script, scene.b.script = answering(UNKNOWN), answering(reply(b'{"name":"m"}'))
    for path in ("/v2/models/m", "/v2/models/m/config", "/v2/models/m/versions/1"):
        for _ in range(2):
            assert (await scene.ask(get(path))).status == 200, path


@in_scene()
async def test_a_question_waits_as_a_call_does(scene: Scene) -> None:
    scene.a.script = loads_later(scene, answering(reply(b'{"name":"m"}')))
    client = await asleep(scene, get("/v2/models/m"))
    scene.plane.gateway.sweep()
    assert (await client.answer()).status == 200
    scene.a.script = answering(UNKNOWN)
    await client.send(get("/v2/models/m/config"))
    await waiting(scene)
    pass_waiting_time(scene, 1)
    answer = await client.answer()
    assert (answer.status, answer.header("retry-after")) == (503, "1")
