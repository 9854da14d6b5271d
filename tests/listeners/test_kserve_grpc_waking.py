"""What becomes of unary calls whose model's pool has been scaled to zero."""

import gzip
from functools import partial

import pytest
from builders import snapshot, target, until, view
from grpc_wire import LOOPS, Received, Scene, answer, infer, message, play, reset
from listeners.grpc_waking_scene import (
    ASLEEP,
    BESIDE,
    DEADLINE_EXCEEDED,
    UNAVAILABLE,
    WIDE,
    asked,
    give_up,
    models,
    send,
    waiting,
    wake,
)
from tritonclient.grpc import service_pb2

from serve.core.calls import Reply
from serve.listeners.grpc.fleet import FleetGrpc
from serve.listeners.grpc.services import Asked, Unary
from serve.wire.statistics_grpc import METADATA

RENAMED = snapshot(view(target(2, "a", physical="m--01234567")), BESIDE)
READY = "/inference.GRPCInferenceService/ModelReady"


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_call_waits_for_its_pool_and_is_answered_by_the_first_replica(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, list[bytes]]:
        client = await scene.client()
        client.call(1)
        await waiting(scene)
        assert asked(scene) == [] and scene.pool.board.held > 0
        wake(scene)
        [received] = await scene.over(client, 1)
        return received, asked(scene)

    received, sent = play(scenario, loop, ASLEEP)
    assert (received.status, received.messages) == (0, [answer()])
    assert received.trailers["servegate-version"] == "1; by=latest; generation=2"
    assert models(sent) == [("m", "1", 8)]


@pytest.mark.parametrize(
    ("when", "size"),
    [
        ("before", 100),
        ("before", 50_000),
        ("before", 900_000),
        ("meanwhile", 900_000),
        ("after", 900_000),
    ],
)
def test_a_message_is_whole_whenever_its_parts_come(loop: str, when: str, size: int) -> None:
    async def scenario(scene: Scene) -> tuple[Received, list[bytes]]:
        scene.tritons["a"].greeting = WIDE
        client = await scene.client()
        client.open(1)
        whole = message(infer(size=size))
        cut = len(whole) if when == "before" else 300_000
        send(client, whole[:cut], ends=cut == len(whole))
        await waiting(scene)
        if when == "meanwhile":
            send(client, whole[cut:], ends=True)
            await until(lambda: scene.pool.board.held >= len(whole))
        wake(scene)
        if when == "after":
            send(client, whole[cut:], ends=True)
        [received] = await scene.over(client, 1)
        return received, asked(scene)

    received, sent = play(scenario, loop, ASLEEP)
    assert received.status == 0
    assert models(sent) == [("m", "1", size)]


def has_come(scene: Scene, size: int) -> bool:
    """Whether so many bytes have come to the replica."""
    return sum(len(call.body) for call in scene.tritons["a"].calls) >= size


def test_a_message_larger_than_the_window_goes_on_once_the_pool_is_awake(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, list[bytes]]:
        scene.tritons["a"].greeting = WIDE
        client = await scene.client()
        client.open(1)
        whole, credit = message(infer(size=3 << 20)), 1 << 20
        send(client, whole[:credit], ends=False)
        await waiting(scene)
        await until(lambda: scene.pool.board.held >= credit)
        wake(scene)
        rest = whole[credit:]
        while rest:
            sent = len(whole) - len(rest)
            await until(partial(has_come, scene, sent - (1 << 19)))
            send(client, rest[: 1 << 16], ends=len(rest) <= 1 << 16)
            rest = rest[1 << 16 :]
        [received] = await scene.over(client, 1)
        return received.status, asked(scene)

    status, sent = play(scenario, loop, ASLEEP)
    assert status == 0
    assert models(sent) == [("m", "1", 3 << 20)]


def test_a_compressed_message_waits_too(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, list[bytes]]:
        scene.tritons["a"].greeting = WIDE
        client = await scene.client()
        client.open(1, metadata=(("grpc-encoding", "gzip"),))
        packed = message(gzip.compress(infer(size=50_000)), flag=1)
        send(client, packed, ends=True)
        await waiting(scene)
        wake(scene)
        [received] = await scene.over(client, 1)
        return received.status, asked(scene)

    status, sent = play(scenario, loop, ASLEEP)
    assert status == 0
    assert models(sent) == [("m", "1", 50_000)]


def test_names_are_told_to_triton_and_restored_for_the_client(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, list[bytes]]:
        scene.tritons["a"].says = lambda request: answer("m--01234567")
        client = await scene.client()
        client.call(1)
        await waiting(scene)
        wake(scene, RENAMED)
        [received] = await scene.over(client, 1)
        return received, asked(scene)

    received, sent = play(scenario, loop, ASLEEP)
    assert models(sent) == [("m--01234567", "2", 8)]
    [told] = received.messages
    assert service_pb2.ModelInferResponse.FromString(told).model_name == "m"


def test_a_pool_that_does_not_wake_in_time_is_told_as_unavailable(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.call(1)
        await waiting(scene)
        give_up(scene)
        [received] = await scene.over(client, 1)
        client.call(3)  # the connection goes on
        await waiting(scene)
        wake(scene)
        [again] = await scene.over(client, 3)
        assert again.status == 0
        return received

    received = play(scenario, loop, ASLEEP)
    assert received.status == UNAVAILABLE
    assert received.trailers["servegate-error"] == "asleep"
    assert "its pool did not wake within 10 s" in received.trailers["grpc-message"]


def test_a_call_waits_no_longer_than_its_deadline(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        client.call(1, metadata=(("grpc-timeout", "3S"),))
        await waiting(scene)
        scene.plane.clock.now += 3
        scene.plane.gateway.sweep()
        scene.sweep()
        [received] = await scene.over(client, 1)
        await waiting(scene, 0)
        return received.status

    assert play(scenario, loop, ASLEEP) in (UNAVAILABLE, DEADLINE_EXCEEDED)


def test_more_calls_than_the_worker_keeps_are_refused_at_once(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        for stream in (1, 3, 5, 7):
            client.call(stream)
        await waiting(scene, 4)
        received = await scene.call(client, 9)
        wake(scene)
        await scene.over(client, 1, 3, 5, 7)
        return received

    received = play(scenario, loop, ASLEEP)
    assert (received.status, received.trailers["servegate-error"]) == (UNAVAILABLE, "asleep")


def test_calls_that_wait_leave_room_for_the_bodies_of_others(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, Received]:
        scene.tritons["a"].greeting = scene.tritons["b"].greeting = WIDE
        client = await scene.client()
        client.call(1, infer(size=600))
        await waiting(scene)
        refused = await scene.call(client, 3, infer(size=600))
        other = await scene.call(client, 5, infer("n", size=300))
        wake(scene)
        await scene.over(client, 1)
        return refused, other

    refused, other = play(scenario, loop, ASLEEP, in_flight=1000)
    assert refused.trailers["servegate-error"] == "no_room"
    assert other.status == 0


@pytest.mark.parametrize("how", ["reset", "gone"])
def test_a_client_that_leaves_does_not_reach_a_replica(loop: str, how: str) -> None:
    async def scenario(scene: Scene) -> list[bytes]:
        client = await scene.client()
        client.call(1)
        await waiting(scene)
        client.send(reset(1)) if how == "reset" else client.abort()
        await waiting(scene, 0)
        wake(scene)
        return asked(scene)

    assert play(scenario, loop, ASLEEP) == []


def test_a_question_whether_the_model_is_ready_is_answered_at_once(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        name = service_pb2.ModelReadyRequest(name="m").SerializeToString()
        client.open(1, READY)
        send(client, message(name), ends=True)
        [received] = await scene.over(client, 1)
        assert scene.plane.waking.waiting == {} and scene.plane.news == 0
        return received

    received = play(scenario, loop, ASLEEP)
    [told] = received.messages
    assert received.status == 0
    assert not service_pb2.ModelReadyResponse.FromString(told).ready


def test_a_question_about_a_model_waits_like_a_call(loop: str) -> None:
    fleets: list[FleetGrpc] = []

    async def metadata(asked: Asked) -> Reply:
        return await fleets[0].metadata(asked)

    async def scenario(scene: Scene) -> Received:
        fleets.append(FleetGrpc(scene.plane.gateway, scene.pool, clock=scene.plane.clock))
        told = service_pb2.ModelMetadataResponse(name="m", versions=["1"]).SerializeToString()
        scene.tritons["a"].says = lambda request: told
        client = await scene.client()
        name = service_pb2.ModelMetadataRequest(name="m").SerializeToString()
        client.open(1, METADATA)
        send(client, message(name), ends=True)
        await waiting(scene)
        wake(scene, snapshot(view(target(1, "a"), target(2, "a")), BESIDE))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ASLEEP, services={METADATA: Unary(metadata)})
    [told] = received.messages
    assert received.status == 0
    assert list(service_pb2.ModelMetadataResponse.FromString(told).versions) == ["1", "2"]
