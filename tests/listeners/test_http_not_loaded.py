"""A replica that does not know a model which the snapshot says it holds: no caller gets its 404."""

import asyncio
import json

import pytest
from builders import snapshot, target, until, view
from listeners.http_messages import GOOD, reply, request
from listeners.http_replicas import Received, Script, answering
from listeners.http_scene import Scene, in_scene
from listeners.tfserving_scene import Front, gives_its_input, in_front, model

from serve.listeners.http.upload import KEPT
from serve.wire.tfserving_messages import GET_MODEL_METADATA, messages

UNKNOWN = reply(b'{"error":"Request for unknown model: \'m\' is not found"}', status=404)
UNLOADED = reply(
    b'{"error":"Request for unknown model: \'m\' version 1 is not at ready state"}', status=503
)
RENAMED = snapshot(view(target(1, "a", physical="m--01234567")))
PREDICT = "/v1/models/m:predict"
ROWS = {"instances": [[1.0, 2.0]]}


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def waiting(scene: Scene | Front, count: int = 1) -> None:
    await until(lambda: scene.plane.waking.count == count)


def give_up(scene: Scene | Front) -> None:
    """The time in which a version may be loaded is over."""
    scene.plane.clock.now += 1
    scene.plane.gateway.sweep()


def loads_later(scene: Scene | Front, then: Script, unknown: bytes = UNKNOWN) -> Script:
    """A replica that knows the model once it was asked for it."""

    async def script(call: Received) -> None:
        is_first = len(scene.replicas[0].requests) == 1
        await (answering(unknown) if is_first else then)(call)

    return script


@pytest.mark.parametrize("unknown", [UNKNOWN, UNLOADED], ids=["unknown", "unloaded"])
@in_scene()
async def test_a_call_waits_until_its_only_replica_has_loaded_the_model(
    scene: Scene, unknown: bytes
) -> None:
    scene.a.script = loads_later(scene, answering(reply(GOOD)), unknown)
    client = await scene.connect()
    await client.send(request(b'{"x":1}'))
    await waiting(scene)
    scene.plane.gateway.sweep()
    answer = await client.answer()
    assert (answer.status, answer.body) == (200, GOOD)
    assert scene.a.bodies == [b'{"x":1}'] * 2
    assert (await client.ask(request())).status == 200  # the connection goes on


@in_scene()
async def test_a_call_whose_model_is_not_loaded_in_time_is_told_when_to_try_again(
    scene: Scene,
) -> None:
    scene.a.script = answering(UNKNOWN)
    client = await scene.connect()
    await client.send(request())
    await waiting(scene)
    give_up(scene)
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
    client = await scene.connect()
    await client.send(request())
    await waiting(scene)
    client.close()
    await waiting(scene, 0)
    assert len(scene.a.requests) == 1


@in_scene(RENAMED)
async def test_names_are_restored_in_the_answer_to_a_call_that_has_waited(scene: Scene) -> None:
    said = b'{"error":"Request for unknown model: \'m--01234567\' is not found"}'
    named = b'{"model_name":"m--01234567","model_version":"1","outputs":[]}'
    scene.a.script = loads_later(scene, answering(reply(named)), reply(said, status=404))
    client = await scene.connect()
    await client.send(request())
    await waiting(scene)
    scene.plane.gateway.sweep()
    assert json.loads((await client.answer()).body)["model_name"] == "m"


@pytest.mark.parametrize("path", ["/v2/models/m", "/v2/models/m/config", "/v2/models/m/versions/1"])
@in_scene(2)
async def test_a_question_goes_to_another_replica(scene: Scene, path: str) -> None:
    scene.a.script, scene.b.script = answering(UNKNOWN), answering(reply(b'{"name":"m"}'))
    for _ in range(2):
        assert (await scene.ask(get(path))).status == 200


@in_scene()
async def test_a_question_waits_as_a_call_does(scene: Scene) -> None:
    scene.a.script = loads_later(scene, answering(reply(b'{"name":"m"}')))
    first = await scene.connect()
    await first.send(get("/v2/models/m"))
    await waiting(scene)
    scene.plane.gateway.sweep()
    assert (await first.answer()).status == 200
    scene.a.script = answering(UNKNOWN)
    await first.send(get("/v2/models/m/config"))
    await waiting(scene)
    give_up(scene)
    answer = await first.answer()
    assert (answer.status, answer.header("retry-after")) == (503, "1")


# --- TensorFlow Serving's calls -------------------------------------------------------------------


def metadata() -> bytes:
    asked = messages().make("GetModelMetadataRequest")
    asked.model_spec.name = "m"
    asked.metadata_field.append("signature_def")
    data: bytes = asked.SerializeToString()
    return data


@in_front()
async def test_a_prediction_waits_for_its_signature_and_for_its_execution(front: Front) -> None:
    serving = model(gives_its_input)

    async def script(call: Received) -> None:
        is_asked_again = len(front.a.requests) in (2, 4)  # the signature, and the execution
        await (serving if is_asked_again else answering(UNKNOWN))(call)

    front.a.script = script
    asking = asyncio.ensure_future(front.post(PREDICT, ROWS))
    for _ in range(2):
        await waiting(front)
        front.plane.gateway.sweep()
    assert await asking == (200, {"predictions": [[1.0, 2.0]]})
    assert [line.split()[0] for line in front.a.lines] == ["GET", "GET", "POST", "POST"]


@in_front()
async def test_a_prediction_whose_model_is_not_loaded_in_time_is_unavailable(front: Front) -> None:
    front.a.script = answering(UNKNOWN)
    over_rest = asyncio.ensure_future(front.post(PREDICT, ROWS))
    over_grpc = asyncio.ensure_future(front.rpc(GET_MODEL_METADATA, metadata()))
    await waiting(front, 2)
    give_up(front)
    assert (await over_rest)[0] == 503
    assert (await over_grpc)[0] == 14
