"""Replicas that fail every call, each in its way: both listeners eject them, and probe them."""

import itertools
from collections.abc import Callable

import pytest
from builders import until
from grpc_wire import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    Peer,
    Triton,
    answer,
    block,
    frame,
    message,
    reset,
)
from listeners.grpc_scene import TWO
from listeners.grpc_scene import Scene as GrpcScene
from listeners.grpc_scene import in_scene as in_grpc
from listeners.http_messages import GOOD, reply, request
from listeners.http_replicas import Script, answering, answers_good, breaking_off
from listeners.http_scene import Scene, in_scene

from serve.proxy.outliers import BASE, IN_A_ROW

CALLS = 20


HTTP: dict[str, Script] = {
    "reset": breaking_off(resets=True),
    "half a body": breaking_off(reply(GOOD, length=99)),
    "500": answering(reply(b'{"error":"out of memory"}', status=500)),
    "502 of a proxy": answering(reply(b"<html>", status=502)),
}


async def ended(scene: Scene) -> None:
    """One call, whatever becomes of it."""
    client = await scene.connect()
    await client.send(request())
    await until(lambda: sum(scene.plane.loads.models.values()) == 1)
    await until(lambda: not scene.plane.loads.models)
    client.close()


@pytest.mark.parametrize("fault", HTTP)
@in_scene(2, loops=("uvloop",))
async def test_a_replica_that_fails_every_call_over_http_gets_five_and_a_probe(
    scene: Scene, fault: str
) -> None:
    scene.a.script, scene.b.script = HTTP[fault], answers_good
    for _ in range(CALLS):
        await ended(scene)
    assert len(scene.a.requests) == IN_A_ROW
    scene.plane.clock.now += BASE
    scene.a.script = answers_good
    for _ in range(10):
        assert (await scene.ask(request())).status == 200
    assert len(scene.a.requests) > IN_A_ROW + 3
    assert not scene.plane.health.outliers.rows


Fault = Callable[[Triton, int, Peer], None]


def half(triton: Triton, number: int, peer: Peer) -> None:
    triton.head(number, peer=peer)
    triton.data(number, message(answer())[:-1], peer)
    peer.abort()


def no_grpc(triton: Triton, number: int, peer: Peer) -> None:
    only = block((":status", "502"), ("content-type", "text/html"))
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, number, only))


GRPC: dict[str, Fault] = {
    "reset": lambda triton, number, peer: peer.send(reset(number)),
    "half an answer": half,
    "INTERNAL": lambda triton, number, peer: triton.refuse(number, 13, "it broke", peer),
    "502 of a proxy": no_grpc,
}


@pytest.mark.parametrize("fault", GRPC)
@in_grpc(TWO, loops=("uvloop",))
async def test_a_replica_that_fails_every_call_over_grpc_gets_five_and_a_probe(
    scene: GrpcScene, fault: str
) -> None:
    failing, failed = scene.tritons["a"], []
    numbers = itertools.count(1, 2)

    def fail(peer: Peer, number: int) -> None:
        failed.append(number)
        GRPC[fault](failing, number, peer)

    failing.ends = fail
    client = await scene.client()
    for _ in range(CALLS):
        await scene.call(client, next(numbers))
    assert len(failed) == IN_A_ROW
    scene.plane.clock.now += BASE
    failing.ends = failing.end_well
    for _ in range(10):
        assert (await scene.call(client, next(numbers))).status == 0
    assert not scene.plane.health.outliers.rows
