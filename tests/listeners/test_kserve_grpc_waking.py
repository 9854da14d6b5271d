"""Calls over gRPC that wait: for a pool that sleeps, or a model that is not loaded yet."""

import gzip
from collections.abc import Callable
from functools import partial

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    Client,
    Received,
    Triton,
    answer,
    frame,
    infer,
    message,
    reset,
)
from listeners.grpc_scene import (
    ASLEEP,
    ONE,
    OTHER,
    TWO,
    WIDE,
    Scene,
    failed,
    fleet,
    in_scene,
    models,
    pass_waiting_time,
    read,
    said,
    send,
    stream_of,
    waiting,
    wake,
)
from listeners.grpc_scene import RENAMED as RENAMED_HERE
from tritonclient.grpc import service_pb2

from serve.wire.statistics_grpc import METADATA

UNAVAILABLE = 14
RENAMED = snapshot(view(target(2, "a", physical="m--01234567")), OTHER)
READY = "/inference.GRPCInferenceService/ModelReady"


def sent(scene: Scene, name: str = "a") -> list[bytes]:
    """The messages that came to a replica."""
    return scene.tritons[name].messages


async def asleep(scene: Scene, body: bytes | None = None, *more: str) -> Client:
    """A client whose call waits."""
    client = await scene.client()
    client.call(1, body, *more)
    await waiting(scene)
    return client


@in_scene(ASLEEP)
async def test_a_call_waits_until_its_pool_has_a_replica(scene: Scene) -> None:
    scene.tritons["a"].says = lambda request: answer("m--01234567")
    client = await asleep(scene)
    assert sent(scene) == [] and scene.pool.board.held > 0
    wake(scene, RENAMED)
    [received] = await scene.over(client, 1)
    [response] = map(service_pb2.ModelInferResponse.FromString, received.messages)
    assert (received.status, response.model_name) == (0, "m")
    assert received.trailers["servegate-version"] == "2; by=latest; generation=2"
    assert models(sent(scene)) == [("m--01234567", "2", 8)]


@pytest.mark.parametrize(
    ("when", "size"),
    [("before", 100), ("before", 900_000), ("meanwhile", 900_000), ("after", 900_000)],
)
@in_scene(ASLEEP)
async def test_a_message_is_whole_whenever_its_parts_come(
    scene: Scene, when: str, size: int
) -> None:
    scene.tritons["a"].greeting = WIDE
    client = await scene.client()
    client.open(1)
    whole = message(infer(size=size))
    cut = len(whole) if when == "before" else 300_000
    send(client, whole[:cut], ends=cut == len(whole))
    await waiting(scene)
    if when == "meanwhile":
        send(client, whole[cut:])
        await until(lambda: scene.pool.board.held >= len(whole))
    wake(scene)
    if when == "after":
        send(client, whole[cut:])
    [received] = await scene.over(client, 1)
    assert received.status == 0
    assert models(sent(scene)) == [("m", "1", size)]


def has_come(scene: Scene, size: int) -> bool:
    """Whether so many bytes have come to the replica."""
    return sum(len(call.body) for call in scene.tritons["a"].calls) >= size


@in_scene(ASLEEP)
async def test_a_message_beyond_the_window_goes_on_once_the_pool_is_awake(scene: Scene) -> None:
    scene.tritons["a"].greeting = WIDE
    client = await scene.client()
    client.open(1)
    whole, credit = message(infer(size=3 << 20)), 1 << 20
    send(client, whole[:credit], ends=False)
    await waiting(scene)
    await until(lambda: scene.pool.board.held >= credit)
    wake(scene)
    for at in range(credit, len(whole), 1 << 16):
        await until(partial(has_come, scene, at - (1 << 19)))
        piece = whole[at : at + (1 << 16)]
        send(client, piece, ends=at + (1 << 16) >= len(whole))
    [received] = await scene.over(client, 1)
    assert received.status == 0
    assert models(sent(scene)) == [("m", "1", 3 << 20)]


@in_scene(ASLEEP)
async def test_a_compressed_message_waits_too(scene: Scene) -> None:
    scene.tritons["a"].greeting = WIDE
    client = await scene.client()
    client.open(1, metadata=(("grpc-encoding", "gzip"),))
    send(client, message(gzip.compress(infer(size=50_000)), flag=1))
    await waiting(scene)
    wake(scene)
    [received] = await scene.over(client, 1)
    assert received.status == 0
    assert models(sent(scene)) == [("m", "1", 50_000)]


@in_scene(ASLEEP)
async def test_a_call_whose_pool_does_not_wake_in_time_is_unavailable(scene: Scene) -> None:
    client = await asleep(scene)
    pass_waiting_time(scene)
    [received] = await scene.over(client, 1)
    assert (received.status, received.trailers["servegate-error"]) == (UNAVAILABLE, "asleep")
    assert "its pool did not start within 10 s" in received.trailers["grpc-message"]
    client.call(3)  # the connection goes on
    await waiting(scene)
    wake(scene)
    [again] = await scene.over(client, 3)
    assert again.status == 0


@in_scene(ASLEEP, in_flight=1000)
async def test_calls_that_wait_leave_room_for_the_bodies_of_others(scene: Scene) -> None:
    client = await asleep(scene, infer(size=600))
    refused = await scene.call(client, 3, infer(size=600))
    assert refused.trailers["servegate-error"] == "no_room"
    assert (await scene.call(client, 5, infer("n", size=300))).status == 0
    wake(scene)
    await scene.over(client, 1)


@pytest.mark.parametrize("how", ["reset", "gone"])
@in_scene(ASLEEP)
async def test_a_call_whose_client_leaves_does_not_reach_a_replica(scene: Scene, how: str) -> None:
    client = await asleep(scene)
    client.send(reset(1)) if how == "reset" else client.abort()
    await waiting(scene, 0)
    wake(scene)
    assert sent(scene) == []


@in_scene(ASLEEP)
async def test_whether_the_model_is_ready_is_answered_at_once(scene: Scene) -> None:
    received = await scene.ask(service_pb2.ModelReadyRequest(name="m").SerializeToString(), READY)
    [response] = map(service_pb2.ModelReadyResponse.FromString, received.messages)
    assert (received.status, response.ready) == (0, False)
    assert scene.plane.waking.waiting == {} and scene.plane.news == 0


@in_scene(ASLEEP, services=fleet)
async def test_a_question_about_a_model_waits_like_a_call(scene: Scene) -> None:
    answered = service_pb2.ModelMetadataResponse(name="m", versions=["1"]).SerializeToString()
    scene.tritons["a"].says = lambda request: answered
    asked = service_pb2.ModelMetadataRequest(name="m").SerializeToString()
    client = await asleep(scene, asked, METADATA)
    wake(scene, snapshot(view(target(1, "a"), target(2, "a")), OTHER))
    [received] = await scene.over(client, 1)
    [response] = map(service_pb2.ModelMetadataResponse.FromString, received.messages)
    assert (received.status, list(response.versions)) == (0, ["1", "2"])


# --- streams --------------------------------------------------------------------------------------


def answers(scene: Scene, name: str) -> None:
    """The replica answers what has come in its streams so far, and ends them."""
    triton = scene.tritons[name]
    for peer in triton.peers:
        for stream, call in peer.streams.items():
            if stream:
                triton.head(stream, peer=peer)
                for one in map(service_pb2.ModelInferRequest.FromString, call.messages):
                    triton.data(stream, message(said(one.id, one.model_name)), peer)
                triton.end(stream, peer=peer)


@in_scene(ASLEEP)
async def test_a_message_waits_and_those_behind_it_wait_in_their_order(scene: Scene) -> None:
    client = await stream_of(scene, infer(id="1"), infer("n", id="2"), infer(id="3"), ends=True)
    await waiting(scene)
    await until(lambda: not client.streams[1].is_over)
    assert sent(scene, "b") == []
    wake(scene)
    await until(lambda: len(sent(scene)) == 2 and len(sent(scene, "b")) == 1)
    passed = map(service_pb2.ModelInferRequest.FromString, sent(scene))
    assert [one.id for one in passed] == ["1", "3"]
    answers(scene, "a")
    answers(scene, "b")
    [received] = await scene.over(client, 1)
    assert received.status == 0
    assert sorted(read(received)) == [("1", "m", "1"), ("2", "n", "1"), ("3", "m", "1")]


@in_scene(ASLEEP)
async def test_a_message_of_which_a_part_comes_later_goes_on_whole(scene: Scene) -> None:
    scene.tritons["a"].greeting = WIDE
    whole = message(infer(size=900_000, id="1"))
    client = await stream_of(scene)
    send(client, whole[:300_000], ends=False)
    await waiting(scene)
    send(client, whole[300_000:400_000], ends=False)
    wake(scene)
    send(client, whole[400_000:])
    await until(lambda: len(sent(scene)) == 1)
    answers(scene, "a")
    await scene.over(client, 1)
    assert models(sent(scene)) == [("m", "1", 900_000)]


@in_scene(ASLEEP)
async def test_a_message_whose_pool_does_not_wake_is_refused_in_the_stream(scene: Scene) -> None:
    bodies = infer(id="1"), infer("n", id="2")
    client = await stream_of(scene, *bodies)
    strict = await stream_of(scene, *bodies, metadata=[("triton_grpc_error", "true")])
    await waiting(scene, 2)
    pass_waiting_time(scene)
    [ended] = await scene.over(strict, 1)
    assert (ended.status, ended.trailers["servegate-error"]) == (UNAVAILABLE, "asleep")
    await until(lambda: len(sent(scene, "b")) == 1)
    client.send(frame(DATA, END_STREAM, 1))
    answers(scene, "b")
    [received] = await scene.over(client, 1)
    [(first, sentence, _), second] = read(received)
    assert (received.status, first, second) == (0, "1", ("2", "n", "1"))
    assert "its pool did not start within 10 s" in sentence


@in_scene(ASLEEP)
async def test_a_stream_whose_client_leaves_wakes_to_nothing(scene: Scene) -> None:
    client = await stream_of(scene, infer(id="1"), infer(id="2"))
    await waiting(scene)
    client.send(reset(1))
    await waiting(scene, 0)
    wake(scene)
    assert sent(scene) == []


@in_scene(ASLEEP)
async def test_a_stream_that_ends_badly_takes_the_waiting_message_along(scene: Scene) -> None:
    client = await stream_of(scene, infer("n", id="1"), infer(id="2"), infer("n", id="3"))
    await waiting(scene)
    await until(lambda: len(sent(scene, "b")) == 1)
    scene.tritons["b"].refuse(1, 13, "it broke")
    [received] = await scene.over(client, 1)
    await waiting(scene, 0)
    wake(scene)
    assert (received.status, sent(scene)) == (13, [])


# --- a replica that has not loaded the model which the snapshot says it holds ---------------------

CONFIG = "/inference.GRPCInferenceService/ModelConfig"
UNKNOWN = "Request for unknown model: 'm' is not found"
UNLOADED = "Request for unknown model: 'm' version 2 is not at ready state"
NOT_FOUND = 5


async def refused(
    scene: Scene, *call: object, status: int = NOT_FOUND, words: str = UNKNOWN
) -> Client:
    """A client whose call waits, for its only replica does not know the model."""
    client = await scene.unanswered(*call)  # type: ignore[arg-type]
    await scene.asked()
    scene.triton.refuse(1, status, words)
    await waiting(scene)
    return client


async def loaded(scene: Scene, client: Client) -> Received:
    """What the client gets once the replica has the model."""
    scene.triton.answers = True
    pass_waiting_time(scene, 0)
    [received] = await scene.over(client, 1)
    return received


@pytest.mark.parametrize(("status", "words"), [(NOT_FOUND, UNKNOWN), (UNAVAILABLE, UNLOADED)])
@in_scene(RENAMED_HERE, loops=("uvloop",))
async def test_a_call_waits_until_its_only_replica_has_loaded_the_model(
    scene: Scene, status: int, words: str
) -> None:
    words = words.replace("'m'", "'m--01234567'")
    received = await loaded(scene, await refused(scene, status=status, words=words))
    [response] = map(service_pb2.ModelInferResponse.FromString, received.messages)
    assert (received.status, response.model_name, response.model_version) == (0, "m", "2")
    assert models(scene.triton.messages) == [("m--01234567", "2", 8)] * 2


@in_scene(ONE, loops=("uvloop",))
async def test_a_call_whose_model_is_not_loaded_in_time_is_unavailable(scene: Scene) -> None:
    client = await refused(scene)
    pass_waiting_time(scene, 1)
    [received] = await scene.over(client, 1)
    assert (received.status, received.trailers["servegate-error"]) == (UNAVAILABLE, "not_loaded")


@in_scene(ONE, loops=("uvloop",))
async def test_a_call_that_is_too_large_to_be_kept_does_not_wait(scene: Scene) -> None:
    scene.silence()
    client = await scene.client()
    client.open(1)
    send(client, message(infer(size=300_000)))
    await until(lambda: bool(scene.triton.calls))
    scene.triton.refuse(1, NOT_FOUND, UNKNOWN)
    [received] = await scene.over(client, 1)
    assert (received.status, received.trailers["servegate-error"]) == (UNAVAILABLE, "not_loaded")


@in_scene(ONE, loops=("uvloop",))
async def test_a_client_that_leaves_meanwhile_is_forgotten(scene: Scene) -> None:
    (await refused(scene)).abort()
    await waiting(scene, 0)


@in_scene(TWO, loops=("uvloop",))
async def test_a_question_goes_to_another_replica(scene: Scene) -> None:
    asked = service_pb2.ModelConfigRequest(name="m").SerializeToString()
    client = await scene.unanswered(asked, CONFIG)
    (await scene.first_asked()).refuse(1, NOT_FOUND, UNKNOWN)
    [received] = await scene.over(client, 1)
    assert received.status == 0


@in_scene(ONE, loops=("uvloop",), services=fleet)
async def test_metadata_waits_as_a_call_does(scene: Scene) -> None:
    response = service_pb2.ModelMetadataResponse(name="m", versions=["1"]).SerializeToString()
    scene.triton.says = lambda request: response
    request = service_pb2.ModelMetadataRequest(name="m").SerializeToString()
    assert (await loaded(scene, await refused(scene, request, METADATA))).status == 0


def refuse_in_stream(triton: Triton) -> None:
    """Triton says it in an answer, and the stream goes on."""
    triton.head(1)
    triton.data(1, message(failed(UNKNOWN, "7")))


def refuse_the_stream(triton: Triton) -> None:
    triton.refuse(1, NOT_FOUND, UNKNOWN)


async def refused_stream(scene: Scene, *, ends: bool = True) -> tuple[Client, Triton]:
    """A client that has sent one message, and the replica that has got it."""
    client = await stream_of(scene, infer(id="7"), ends=ends)
    [first] = await scene.asked()
    return client, first


@pytest.mark.parametrize("refuse", [refuse_in_stream, refuse_the_stream])
@pytest.mark.parametrize("ends_at_once", [True, False])
@in_scene(TWO, loops=("uvloop",))
async def test_the_first_message_of_a_stream_goes_to_another_replica(
    scene: Scene, refuse: Callable[[Triton], None], ends_at_once: bool
) -> None:
    client, first = await refused_stream(scene, ends=ends_at_once)
    refuse(first)
    [second] = [triton for triton in await scene.asked(2) if triton is not first]
    second.head(1)
    second.data(1, message(said("7")))
    if not ends_at_once:
        await until(lambda: bool(client.streams[1].messages))
        client.send(frame(DATA, END_STREAM, 1))
    await until(lambda: second.calls[0].ended)
    second.end(1)
    [received] = await scene.over(client, 1)
    if refuse is refuse_in_stream:
        await until(lambda: first.calls[0].ended)
        first.end(1)
    assert (received.status, read(received)) == (0, [("7", "m", "1")])


@in_scene(ONE, loops=("uvloop",))
async def test_a_message_without_a_replica_gets_an_error_of_the_gateway(scene: Scene) -> None:
    client, triton = await refused_stream(scene)
    refuse_in_stream(triton)
    [received] = await scene.over(client, 1)
    await until(lambda: triton.calls[0].ended)
    triton.end(1)
    [(identity, sentence, _)] = read(received)
    assert (received.status, identity) == (0, "7")
    assert sentence.startswith("no replica is ready for model 'm' version 1")


@pytest.mark.parametrize("sentence", ["unexpected shape", "Request for unknown model: 'n'"])
@in_scene(TWO, loops=("uvloop",))
async def test_any_other_error_in_a_stream_is_the_answer(scene: Scene, sentence: str) -> None:
    client, first = await refused_stream(scene)
    first.head(1)
    first.data(1, message(failed(sentence)))
    await until(lambda: first.calls[0].ended)
    first.end(1)
    [received] = await scene.over(client, 1)
    assert read(received) == [("", sentence, "")]
