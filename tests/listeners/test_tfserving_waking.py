"""What becomes of TensorFlow Serving's calls whose model's pool has been scaled to zero."""

import asyncio
import dataclasses
import json

from builders import snapshot, target, until, view
from listeners.http_messages import request
from listeners.tfserving_scene import Front, gives_its_input, in_front, model

from serve.core.routes import Split
from serve.wire.tfserving_messages import GET_MODEL_METADATA, PREDICT, messages

SLEEPING = dataclasses.replace(view(asleep=True, labels={"stable": 1}), split=Split.of({1: 100}))
ASLEEP = snapshot(SLEEPING, replicas=("a",))
AWAKE = snapshot(view(target(1, "a"), labels={"stable": 1}))
ROWS = {"instances": [[1.0, 2.0]]}
PATH = "/v1/models/m:predict"


async def waiting(front: Front, count: int = 1) -> None:
    await until(lambda: front.plane.waking.waiting == ({"m": count} if count else {}))


def give_up(front: Front) -> None:
    """The time for which a call may wait is over."""
    front.plane.clock.now += 10
    front.plane.gateway.sweep()


def predict() -> bytes:
    asked = messages().make("PredictRequest")
    asked.model_spec.name = "m"
    tensor = asked.inputs["x"]
    tensor.dtype = 1
    for size in (1, 2):
        tensor.tensor_shape.dim.add(size=size)
    tensor.float_val.extend((1.0, 2.0))
    data: bytes = asked.SerializeToString()
    return data


def metadata() -> bytes:
    asked = messages().make("GetModelMetadataRequest")
    asked.model_spec.name = "m"
    asked.metadata_field.append("signature_def")
    data: bytes = asked.SerializeToString()
    return data


@in_front(ASLEEP)
async def test_a_prediction_over_rest_waits_and_is_answered(front: Front) -> None:
    front.a.script = model(gives_its_input)
    asking = asyncio.ensure_future(front.post(PATH, ROWS))
    await waiting(front)
    assert front.a.requests == []
    front.plane.wake(AWAKE)
    assert await asking == (200, {"predictions": [[1.0, 2.0]]})


@in_front(ASLEEP)
async def test_a_prediction_over_grpc_waits_and_is_answered(front: Front) -> None:
    front.a.script = model(gives_its_input)
    asking = asyncio.ensure_future(front.rpc(PREDICT, predict()))
    await waiting(front)
    front.plane.wake(AWAKE)
    code, said, trailers = await asking
    assert code == 0, said
    assert trailers["servegate-version"] == "1; by=latest; generation=2"


@in_front(ASLEEP)
async def test_metadata_wait_over_both(front: Front) -> None:
    front.a.script = model(gives_its_input)
    rest = asyncio.ensure_future(front.get("/v1/models/m/metadata"))
    rpc = asyncio.ensure_future(front.rpc(GET_MODEL_METADATA, metadata()))
    await waiting(front, 2)
    front.plane.wake(AWAKE)
    assert (await rest)[0] == 200
    assert (await rpc)[0] == 0


@in_front(ASLEEP)
async def test_a_pool_that_does_not_wake_in_time_is_told_over_both(front: Front) -> None:
    rest = asyncio.ensure_future(front.ask(request(json.dumps(ROWS).encode(), path=PATH)))
    rpc = asyncio.ensure_future(front.rpc(PREDICT, predict()))
    await waiting(front, 2)
    give_up(front)
    answer = await rest
    assert (answer.status, answer.code) == (503, "asleep")
    assert int(answer.header("retry-after") or 0) > 1
    assert "its pool did not wake within 10 s" in json.loads(answer.body)["error"]
    code, said, trailers = await rpc
    assert (code, trailers["servegate-error"]) == (14, "asleep"), said


@in_front(ASLEEP)
async def test_a_client_that_leaves_does_not_reach_a_replica(front: Front) -> None:
    client = await front.connect()
    await client.send(request(json.dumps(ROWS).encode(), path=PATH))
    await waiting(front)
    client.close()
    await waiting(front, 0)
    front.plane.wake(AWAKE)
    assert front.a.requests == []
    assert [line.error for line in front.lines.all] == ["client_left"]


@in_front(ASLEEP)
async def test_its_status_is_loading_and_the_question_wakes_nobody(front: Front) -> None:
    status, told = await front.get("/v1/models/m")
    assert status == 200
    assert [one["state"] for one in told["model_version_status"]] == ["LOADING"]
    assert front.plane.waking.waiting == {} and front.plane.news == 0
