"""The listener over TLS: everything as in clear, but that the kernel moves no bodies."""

from hashlib import sha256

import pytest
from builders import until
from listeners.http_messages import INFER, MIB, reply, request
from listeners.http_replicas import Received
from listeners.http_scene import Scene, in_scene

TENSOR = bytes(range(256)) * (4 * MIB // 256)


@in_scene(tls=True)
async def test_bodies_of_any_size_go_both_ways(scene: Scene) -> None:
    async def script(call: Received) -> None:
        await call.read()
        call.write(reply(TENSOR[: call.size]))

    scene.a.script = script
    client = await scene.connect(limit=8 * MIB)
    for size in (2, 20_000, 600_000, 4 * MIB):
        for _ in range(3):
            answer = await client.ask(request(TENSOR[:size]))
            assert answer.body == TENSOR[:size]
            assert scene.a.requests[-1].digest == sha256(TENSOR[:size]).hexdigest()
            assert (scene.log.last.received, scene.log.last.answered) == (size, size)


@in_scene(tls=True, send_buffer=1 << 14)
async def test_a_client_that_reads_slowly_pauses_its_replica(scene: Scene) -> None:
    async def script(call: Received) -> None:
        await call.read()
        call.write(reply(TENSOR * 4))

    scene.a.script = script
    client = await scene.connect(limit=1 << 14, receive_buffer=1 << 14)
    await client.send(request())
    await until(lambda: any(one.is_reading_paused for one in scene.upstreams))
    assert (await client.answer()).body == TENSOR * 4


@in_scene(tls=True, limits={"body": 100})
async def test_a_refused_client_that_still_sends_gets_its_answer(scene: Scene) -> None:
    """There is no half of a TLS connection to close: what still comes is dropped until it ends."""
    client = await scene.connect()
    await client.send(
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {4 * MIB}\r\n\r\n".encode()
    )
    await client.send(TENSOR[:MIB])
    answer = await client.answer()
    assert (answer.status, answer.code) == (413, "body_too_large")
    scene.pass_time(3.0)
    await client.rest()
    assert scene.a.requests == []


@pytest.mark.parametrize("leave", ["close", "reset"])
@in_scene(tls=True)
async def test_a_client_that_leaves_ends_its_call(scene: Scene, leave: str) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request())
    call = await (await hand.call()).read()
    getattr(client, leave)()
    await until(lambda: bool(scene.log.lines))
    assert scene.log.lines[-1][1] == "client_left"
    call.write(reply())
    await until(lambda: scene.is_at_rest)
    hand.done_all()
