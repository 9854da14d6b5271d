"""TensorFlow Serving's calls that wait: for a pool that sleeps, or a model that is not loaded."""

import asyncio
import contextlib
import json
from collections.abc import Callable

import pytest
import tfserving_bytes as tf
from builders import DataPlane, call
from listeners.http_messages import request
from listeners.http_replicas import Received, answering
from listeners.http_scene import ASLEEP, AWAKE, UNKNOWN, pass_waiting_time, waiting
from listeners.tfserving_scene import Front, gives_its_input, in_front, model

from serve.core.errors import Asleep
from serve.listeners.waits import until_awake
from serve.proxy.attempts import Attempt
from serve.wire.tfserving_messages import GET_MODEL_METADATA, PREDICT

ROWS = {"instances": [[1.0, 2.0]]}
SAID = {"predictions": [[1.0, 2.0]]}
PATH = "/v1/models/m:predict"
PREDICTION = tf.predict_request(tf.spec("m"), x=tf.tensor(tf.FLOAT, [1, 2], tf.floats(1, 2)))
QUESTION = tf.sized(1, tf.spec("m")) + tf.sized(2, "signature_def")


@in_front(ASLEEP)
async def test_predictions_and_questions_wait_over_both_protocols(front: Front) -> None:
    front.a.script = model(gives_its_input)
    rest = asyncio.ensure_future(front.post(PATH, ROWS))
    rpc = asyncio.ensure_future(front.rpc(PREDICT, PREDICTION))
    metadata = asyncio.ensure_future(front.get("/v1/models/m/metadata"))
    rpc_metadata = asyncio.ensure_future(front.rpc(GET_MODEL_METADATA, QUESTION))
    await waiting(front, 4)
    assert front.a.requests == []
    front.plane.wake(AWAKE)
    assert await rest == (200, SAID)
    code, said, trailers = await rpc
    assert code == 0, said
    assert trailers["servegate-version"] == "1; by=latest; generation=2"
    assert (await metadata)[0] == 200
    assert (await rpc_metadata)[0] == 0


@in_front(ASLEEP)
async def test_a_pool_that_does_not_wake_in_time_makes_the_call_unavailable(front: Front) -> None:
    rest = asyncio.ensure_future(front.ask(request(json.dumps(ROWS).encode(), path=PATH)))
    rpc = asyncio.ensure_future(front.rpc(PREDICT, PREDICTION))
    await waiting(front, 2)
    pass_waiting_time(front, 10)
    answer = await rest
    assert (answer.status, answer.code) == (503, "asleep")
    assert int(answer.header("retry-after") or 0) > 1
    assert "its pool did not start within 10 s" in json.loads(answer.body)["error"]
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
    assert [code for _, code, _ in front.log.lines] == ["client_left"]


@in_front(ASLEEP)
async def test_its_status_is_loading_and_the_question_wakes_no_pool(front: Front) -> None:
    status, document = await front.get("/v1/models/m")
    assert status == 200
    assert [one["state"] for one in document["model_version_status"]] == ["LOADING"]
    assert front.plane.waking.waiting == {} and front.plane.news == 0


@in_front()
async def test_a_prediction_waits_for_its_signature_and_for_its_execution(front: Front) -> None:
    serving = model(gives_its_input)

    async def script(call: Received) -> None:
        is_asked_again = len(front.a.requests) in (2, 4)  # the signature, and the execution
        await (serving if is_asked_again else answering(UNKNOWN))(call)

    front.a.script = script
    asking = asyncio.ensure_future(front.post(PATH, ROWS))
    for _ in range(2):
        await waiting(front)
        front.plane.gateway.sweep()
    assert await asking == (200, SAID)
    assert [line.split()[0] for line in front.a.lines] == ["GET", "GET", "POST", "POST"]


@in_front()
async def test_a_prediction_whose_model_is_not_loaded_in_time_is_unavailable(front: Front) -> None:
    front.a.script = answering(UNKNOWN)
    rest = asyncio.ensure_future(front.post(PATH, ROWS))
    rpc = asyncio.ensure_future(front.rpc(GET_MODEL_METADATA, QUESTION))
    await waiting(front, 2)
    pass_waiting_time(front, 1)
    assert (await rest)[0] == 503
    assert (await rpc)[0] == 14


# --- tasks that wait ------------------------------------------------------------------------------


def after(happens: Callable[[DataPlane, "asyncio.Task[Attempt]"], None]) -> DataPlane:
    """A data plane on which this happens while a task waits, which is then over."""
    plane = DataPlane(ASLEEP)

    async def scenario() -> None:
        task = asyncio.create_task(until_awake(plane.gateway, call()))
        await asyncio.sleep(0)
        assert plane.waking.waiting == {"m": 1}
        happens(plane, task)
        with contextlib.suppress(asyncio.CancelledError):
            (await task).answered(200, good=True)

    try:
        asyncio.run(scenario())
    finally:
        assert plane.waking.waiting == {} and plane.loads.total == 0
    return plane


def test_a_task_goes_on_with_an_attempt() -> None:
    plane = after(lambda plane, _: plane.wake(AWAKE))
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}
    assert plane.count("servegate_calls_total", **labels, verb="infer", code="200") == 1


def test_a_task_whose_caller_leaves_is_forgotten_even_as_its_attempt_comes() -> None:
    def wake(plane: DataPlane, task: "asyncio.Task[Attempt]") -> None:
        plane.wake(AWAKE)
        assert plane.loads.total == 1
        task.cancel()

    after(wake)
    after(lambda _, task: task.cancel() and None)


def test_a_task_whose_pool_does_not_wake_is_told_so() -> None:
    with pytest.raises(Asleep, match="this worker is stopping"):
        after(lambda plane, _: plane.waking.close())
