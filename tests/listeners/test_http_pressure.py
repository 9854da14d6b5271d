"""Whoever is slower pauses the other: bounded memory, and nobody else waits."""

import asyncio
import tracemalloc
from collections.abc import Callable
from hashlib import sha256

import pytest
from builders import until
from listeners.http_messages import GOOD, HEAD, MIB, chunk, content, reply, request
from listeners.http_replicas import Received, answering
from listeners.http_scene import Scene, in_scene

from serve.listeners.http.splice import WORTHWHILE
from serve.triton.http_connection import HIGH_WATER


def framed(framing: str, size: int) -> bytes:
    """The end of a head whose body is of this size."""
    if framing == "length":
        return b"Content-Length: %d\r\n\r\n" % size
    return b"Transfer-Encoding: chunked\r\n\r\n"


def held(scene: Scene) -> int:
    """Bytes that the gateway holds of all bodies, on both sides."""
    sides = [*scene.listener.clients, *scene.upstreams]
    buffers = [one.transport.get_write_buffer_size() for one in sides]  # type: ignore[attr-defined]
    return int(scene.listener.held + sum(buffers))


async def pour(
    scene: Scene, transport: asyncio.WriteTransport, write: Callable[[bytes], None], piece: bytes
) -> None:
    """Send until nothing goes any more, which is soon: the kernel takes a little on the way."""
    gone, quiet, total = 0, 0, 64 * MIB
    while quiet < 2000 and gone < total:
        if transport.get_write_buffer_size() == 0:
            write(piece)
            gone, quiet = gone + len(piece), 0
        quiet += 1
        assert held(scene) <= 4 * HIGH_WATER
        await asyncio.sleep(0)
    assert gone < total // 2


@pytest.mark.parametrize("framing", ["length", "chunks"])
@in_scene()
async def test_a_replica_that_does_not_read_stops_the_client(scene: Scene, framing: str) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    piece = content(1 << 17) if framing == "length" else chunk(content(1 << 17))
    client.writer.write(HEAD + framed(framing, 64 * MIB))
    await pour(scene, client.writer.transport, client.writer.write, piece)
    call = await hand.call()
    client.reset()
    await scene.until_swept(lambda: scene.is_at_rest)  # noticed although nothing is read from it
    hand.done(call)


@pytest.mark.parametrize("framing", ["length", "chunks"])
@in_scene()
async def test_a_replica_that_reads_again_gets_all_of_it(scene: Scene, framing: str) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    body = content(24 * MIB)
    is_plain = framing == "length"
    head = HEAD + framed(framing, len(body))
    sending = asyncio.ensure_future(
        client.send(head, body if is_plain else chunk(body) + b"0\r\n\r\n")
    )
    call = await hand.call()
    await until(lambda: any(one.is_request_paused for one in scene.listener.clients))
    assert held(scene) <= 4 * HIGH_WATER
    await call.read()
    assert call.digest == sha256(body).hexdigest()
    call.write(reply())
    hand.done(call)
    await sending
    assert (await client.answer()).body == GOOD


@pytest.mark.parametrize("framing", ["length", "chunks"])
@in_scene()
async def test_a_client_that_does_not_read_stops_the_replica(scene: Scene, framing: str) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect(limit=1 << 12, receive_buffer=1 << 14)
    await client.send(request())
    call = await hand.call()
    await call.read()
    piece = content(1 << 17) if framing == "length" else chunk(content(1 << 17))
    call.write(b"HTTP/1.1 200 OK\r\n" + framed(framing, 64 * MIB))
    await pour(scene, call._peer.writer.transport, call.write, piece)
    client.reset()
    hand.done(call)
    await until(lambda: not scene.listener.clients)
    await until(lambda: scene.is_at_rest)


@pytest.mark.parametrize("size", [600_000, 4 * MIB])
@pytest.mark.parametrize("framing", ["length", "chunks"])
@in_scene(send_buffer=1 << 14)
async def test_a_connection_whose_answer_was_read_slowly_serves_the_next_call(
    scene: Scene, size: int, framing: str
) -> None:
    body = content(size)

    async def answers_at_length(call: Received) -> None:
        await call.read()
        if call.body == b"next":
            call.write(reply())
        elif framing == "length":
            call.write(reply(body))
        else:
            call.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            call.write(chunk(body) + b"0\r\n\r\n")

    scene.a.script = answers_at_length
    slow = await scene.connect(limit=1 << 10, receive_buffer=1 << 14)
    await slow.send(request())
    head = await slow.head()
    if framing == "chunks" or size < WORTHWHILE:
        await until(lambda: any(one.is_answer_paused for one in scene.listener.clients))
    received = b""
    while len(received) < size:
        received += await slow.reader.read(1 << 16)
    assert head.status == 200
    client = await scene.connect()
    assert (await client.ask(request(b"next"))).body == GOOD


@in_scene(send_buffer=1 << 14)
async def test_a_whole_answer_to_a_slow_reader_frees_its_connection(scene: Scene) -> None:
    """Everything is written, the client is paused: the replica's connection is free already."""
    body = content(200_000)
    scene.a.script = answering(reply(body), *[reply(body)] * 40, reply())
    slow = await scene.connect(limit=1 << 10, receive_buffer=1 << 14)
    for _ in range(12):
        slow.writer.write(request())
    await until(lambda: any(one.is_answer_paused for one in scene.listener.clients))
    await until(lambda: scene.pool.busy == 0)
    client = await scene.connect()
    for _ in range(3):
        assert (await client.ask(request())).status == 200


@in_scene()
async def test_a_client_that_sends_on_and_reads_nothing_is_paused(scene: Scene) -> None:
    scene.a.script = answering(reply(content(10_000)))
    client = await scene.connect(limit=1 << 10, receive_buffer=1 << 14)
    one = request() * 50
    quiet = 0
    while quiet < 500 and len(scene.a.requests) < 20_000:
        before = len(scene.a.requests)
        if client.writer.transport.get_write_buffer_size() < 1 << 16:
            client.writer.write(one)
        await asyncio.sleep(0)
        quiet = 0 if len(scene.a.requests) > before else quiet + 1
        assert held(scene) <= 4 * HIGH_WATER
    count = len(scene.a.requests)
    assert count < 20_000
    for _ in range(count):  # and is served on as it reads
        assert (await client.answer()).status == 200
    await until(lambda: len(scene.a.requests) > count)


@pytest.mark.parametrize("framing", ["length", "chunks"])
@in_scene(loops=("asyncio",))
async def test_memory_does_not_grow_with_the_body(scene: Scene, framing: str) -> None:
    size, total = 1 << 17, 32 * MIB
    is_plain = framing == "length"
    piece = bytes(size)
    sent = piece if is_plain else chunk(piece)

    async def script(call: Received) -> None:
        call.body = b""
        await call.read()
        call.write(reply(b"", length=total))
        for _ in range(total // size):
            call.write(piece)
            await call.drain()

    scene.a.script = script
    client = await scene.connect(limit=1 << 16)
    tracemalloc.start()
    try:
        await client.send(HEAD + framed(framing, total))
        for _ in range(total // size):
            await client.send(sent)
        if not is_plain:
            await client.send(b"0\r\n\r\n")
        await client.head()
        got = 0
        while got < total:
            got += len(await client.reader.read(1 << 16))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert got == total
    assert peak < 6 * MIB  # with the client's and the replica's part, which keeps a mebibyte
