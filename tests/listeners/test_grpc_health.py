"""Health checks and reflection on the gRPC port, as clients of theirs ask."""

import asyncio
from dataclasses import replace

import pytest
from builders import DataPlane, snapshot, target, view
from grpc_wire import DATA, END_STREAM, LOOPS, Received, Scene, frame, message, play

from serve.core.calls import Account, Reply
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.health import CHECK, health
from serve.listeners.grpc.reflection import ReflectionService
from serve.listeners.grpc.services import Asked, Unary
from serve.wire.reflection import METHODS

ONE = snapshot(view(target(1, "a")))
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


class Nobody:
    """Where no call comes from."""

    def account(self) -> Account:
        return Account()


async def check(now: Snapshot | None, *, is_draining: bool) -> Reply:
    service = health(DataPlane(now).gateway, lambda: is_draining)[CHECK]
    assert isinstance(service, Unary)
    return await service.answer(Asked(CHECK, b"\x0a\x01x", (), b"", 1e9, "7", Nobody()))


@pytest.mark.parametrize(
    ("now", "is_draining", "body"),
    [
        (ONE, False, SERVING),
        (ONE, True, NOT_SERVING),
        (None, False, NOT_SERVING),
        pytest.param(replace(ONE, guarded=True), False, SERVING, id="without a key"),
    ],
)
def test_the_gateway_serves_when_it_is_ready_and_does_not_stop(
    now: Snapshot | None, is_draining: bool, body: bytes
) -> None:
    reply = asyncio.run(check(now, is_draining=is_draining))
    assert reply == Reply(0, body)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("method", METHODS)
def test_reflection_answers_each_question_in_turn(loop: str, method: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, method)
        client.send(frame(DATA, 0, 1, message(b"\x3a\x00") + message(b"\x22\x01x")))
        client.send(frame(DATA, END_STREAM, 1, b""))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE, services=ReflectionService().services())
    services, nothing = received.messages
    assert b"inference.GRPCInferenceService" in services
    assert b"'x' is not known" in nothing
    assert received.status == 0


def test_a_question_that_cannot_be_read_ends_the_stream_with_an_error(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, METHODS[0])
        client.send(frame(DATA, END_STREAM, 1, message(b"\xff\xff")))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE, services=ReflectionService().services())
    assert (received.status, received.messages) == (13, [])
