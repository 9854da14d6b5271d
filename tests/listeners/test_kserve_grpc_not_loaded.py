"""A replica that does not know a model which the snapshot says it holds: no caller is told so."""

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    STREAM,
    Received,
    Scene,
    Triton,
    answer,
    frame,
    infer,
    message,
    play,
)
from listeners.grpc_waking_scene import models
from tritonclient.grpc import service_pb2

from serve.core.calls import Reply
from serve.listeners.grpc.fleet import FleetGrpc
from serve.listeners.grpc.services import Asked, Unary
from serve.wire.statistics_grpc import METADATA

Response = service_pb2.ModelStreamInferResponse
CONFIG = "/inference.GRPCInferenceService/ModelConfig"
UNKNOWN = "Request for unknown model: 'm' is not found"
UNLOADED = "Request for unknown model: 'm' version 1 is not at ready state"
NOT_FOUND, UNAVAILABLE = 5, 14
ONE = snapshot(view(target(1, "a")))
TWO = snapshot(view(target(1, "a", "b")))
RENAMED = snapshot(view(target(2, "a", physical="m--01234567")))


async def waiting(scene: Scene, count: int = 1) -> None:
    await until(lambda: scene.plane.waking.count == count)


def silent(scene: Scene) -> None:
    for triton in scene.tritons.values():
        triton.answers = False


async def asked(scene: Scene, count: int = 1) -> list[Triton]:
    """The replicas that have got a message, when there are so many."""
    await until(lambda: len([t for t in scene.tritons.values() if _messages(t)]) >= count)
    return [t for t in scene.tritons.values() if _messages(t)]


def _messages(triton: Triton) -> list[bytes]:
    return [one for call in triton.calls for one in call.messages]


# --- unary calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "said"), [(NOT_FOUND, UNKNOWN), (UNAVAILABLE, UNLOADED)])
def test_a_call_waits_until_its_only_replica_has_loaded_the_model(status: int, said: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, list[bytes]]:
        silent(scene)
        client = await scene.client()
        client.call(1)
        await asked(scene)
        scene.triton.refuse(1, status, said)
        await waiting(scene)
        scene.triton.answers = True
        scene.plane.gateway.sweep()
        scene.sweep()
        [received] = await scene.over(client, 1)
        return received, _messages(scene.triton)

    received, sent = play(scenario, "uvloop", ONE)
    assert (received.status, received.messages) == (0, [answer()])
    assert models(sent) == [("m", "1", 8)] * 2


def test_a_call_whose_model_is_not_loaded_in_time_is_unavailable() -> None:
    async def scenario(scene: Scene) -> Received:
        silent(scene)
        client = await scene.client()
        client.call(1)
        await asked(scene)
        scene.triton.refuse(1, NOT_FOUND, UNKNOWN)
        await waiting(scene)
        scene.plane.clock.now += 1
        scene.plane.gateway.sweep()
        scene.sweep()
        [received] = await scene.over(client, 1)
        await scene.quiet()
        return received

    received = play(scenario, "uvloop", ONE)
    assert received.status == UNAVAILABLE
    assert received.trailers["servegate-error"] == "not_loaded"


def test_a_call_that_is_too_large_to_be_kept_does_not_wait() -> None:
    async def scenario(scene: Scene) -> Received:
        silent(scene)
        client = await scene.client()
        client.open(1)
        whole = message(infer(size=300_000))
        for at in range(0, len(whole), 1 << 14):
            piece = whole[at : at + (1 << 14)]
            client.send(frame(DATA, END_STREAM * (at + (1 << 14) >= len(whole)), 1, piece))
        await until(lambda: bool(scene.triton.calls))
        scene.triton.refuse(1, NOT_FOUND, UNKNOWN)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, "uvloop", ONE)
    assert (received.status, received.trailers["servegate-error"]) == (UNAVAILABLE, "not_loaded")


def test_names_are_restored_in_the_answer_to_a_call_that_has_waited() -> None:
    async def scenario(scene: Scene) -> tuple[Received, list[bytes]]:
        silent(scene)
        client = await scene.client()
        client.call(1)
        await asked(scene)
        scene.triton.refuse(1, NOT_FOUND, UNKNOWN.replace("'m'", "'m--01234567'"))
        await waiting(scene)
        scene.triton.answers = True
        scene.plane.gateway.sweep()
        scene.sweep()
        [received] = await scene.over(client, 1)
        return received, _messages(scene.triton)

    received, sent = play(scenario, "uvloop", RENAMED)
    [told] = map(service_pb2.ModelInferResponse.FromString, received.messages)
    assert (told.model_name, told.model_version) == ("m", "2")
    assert models(sent) == [("m--01234567", "2", 8)] * 2


def test_a_client_that_leaves_meanwhile_is_forgotten() -> None:
    async def scenario(scene: Scene) -> None:
        silent(scene)
        client = await scene.client()
        client.call(1)
        await asked(scene)
        scene.triton.refuse(1, NOT_FOUND, UNKNOWN)
        await waiting(scene)
        client.abort()
        await waiting(scene, 0)
        await scene.quiet()

    play(scenario, "uvloop", ONE)


# --- questions ------------------------------------------------------------------------------------


def test_a_question_goes_to_another_replica() -> None:
    async def scenario(scene: Scene) -> int:
        silent(scene)
        client = await scene.client()
        question = service_pb2.ModelConfigRequest(name="m").SerializeToString()
        client.call(1, question, CONFIG)
        [first] = await asked(scene)
        for triton in scene.tritons.values():
            triton.answers = triton is not first
        first.refuse(1, NOT_FOUND, UNKNOWN)
        [received] = await scene.over(client, 1)
        return received.status

    assert play(scenario, "uvloop", TWO) == 0


def test_metadata_waits_as_a_call_does() -> None:
    fleets: list[FleetGrpc] = []

    async def metadata(asked: Asked) -> Reply:
        return await fleets[0].metadata(asked)

    async def scenario(scene: Scene) -> Received:
        fleets.append(FleetGrpc(scene.plane.gateway, scene.pool, clock=scene.plane.clock))
        told = service_pb2.ModelMetadataResponse(name="m", versions=["1"]).SerializeToString()
        silent(scene)
        scene.triton.says = lambda request: told
        client = await scene.client()
        client.call(1, service_pb2.ModelMetadataRequest(name="m").SerializeToString(), METADATA)
        await asked(scene)
        scene.triton.refuse(1, NOT_FOUND, UNKNOWN)
        await waiting(scene)
        scene.triton.answers = True
        scene.plane.gateway.sweep()
        scene.sweep()
        [received] = await scene.over(client, 1)
        return received

    assert play(scenario, "uvloop", ONE, services={METADATA: Unary(metadata)}).status == 0


# --- streams --------------------------------------------------------------------------------------


def failed(sentence: str, request_id: str = "") -> bytes:
    response = Response(error_message=sentence)
    response.infer_response.id = request_id
    return bytes(response.SerializeToString())


def said(request_id: str) -> bytes:
    response = Response()
    response.infer_response.id = request_id
    response.infer_response.model_name = "m"
    return bytes(response.SerializeToString())


def refuse_in_stream(triton: Triton) -> None:
    """Triton says it in an answer, and the stream goes on."""
    triton.head(1)
    triton.data(1, message(failed(UNKNOWN, "7")))


def refuse_the_stream(triton: Triton) -> None:
    triton.refuse(1, NOT_FOUND, UNKNOWN)


@pytest.mark.parametrize("refuse", [refuse_in_stream, refuse_the_stream])
@pytest.mark.parametrize("ends", ["at once", "later"])
def test_the_first_message_of_a_stream_goes_to_another_replica(refuse, ends) -> None:  # type: ignore[no-untyped-def]
    async def scenario(scene: Scene) -> tuple[Received, list[str]]:
        silent(scene)
        client = await scene.client()
        client.open(1, STREAM)
        whole = message(infer(id="7"))
        client.send(frame(DATA, END_STREAM * (ends == "at once"), 1, whole))
        [first] = await asked(scene)
        refuse(first)
        await asked(scene, 2)
        [second] = [t for t in scene.tritons.values() if t is not first]
        second.head(1)
        second.data(1, message(said("7")))
        if ends == "later":
            await until(lambda: bool(client.streams[1].messages))
            client.send(frame(DATA, END_STREAM, 1))
        await until(lambda: second.calls[0].ended)
        second.end(1)
        [received] = await scene.over(client, 1)
        if refuse is refuse_in_stream:
            await until(lambda: first.calls[0].ended)
            first.end(1)
        await scene.quiet()
        return received, [t.name for t in scene.tritons.values() if _messages(t)]

    received, tried = play(scenario, "uvloop", TWO)
    assert received.status == 0 and len(tried) == 2
    [told] = map(Response.FromString, received.messages)
    assert (told.infer_response.id, told.error_message) == ("7", "")


def test_a_message_that_no_replica_can_serve_gets_an_error_of_the_gateway() -> None:
    async def scenario(scene: Scene) -> Received:
        silent(scene)
        client = await scene.client()
        client.open(1, STREAM)
        client.send(frame(DATA, END_STREAM, 1, message(infer(id="7"))))
        await asked(scene)
        refuse_in_stream(scene.triton)
        [received] = await scene.over(client, 1)
        await until(lambda: scene.triton.calls[0].ended)
        scene.triton.end(1)
        await scene.quiet()
        return received

    received = play(scenario, "uvloop", ONE)
    [told] = map(Response.FromString, received.messages)
    assert received.status == 0
    assert told.error_message.startswith("no replica is ready for model 'm' version 1")
    assert told.infer_response.id == "7"


@pytest.mark.parametrize("sentence", ["unexpected shape", "Request for unknown model: 'n'"])
def test_any_other_error_in_a_stream_is_the_answer(sentence: str) -> None:
    async def scenario(scene: Scene) -> Received:
        silent(scene)
        client = await scene.client()
        client.open(1, STREAM)
        client.send(frame(DATA, END_STREAM, 1, message(infer(id="7"))))
        [first] = await asked(scene)
        first.head(1)
        first.data(1, message(failed(sentence)))
        await until(lambda: first.calls[0].ended)
        first.end(1)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, "uvloop", TWO)
    [told] = map(Response.FromString, received.messages)
    assert told.error_message == sentence
