"""The listener over TLS: everything as in clear, but that the kernel moves no bodies."""

import pytest
from builders import until
from listeners.http_messages import INFER, chunk, chunked, reply, request
from listeners.http_replicas import Received, echoes
from listeners.http_scene import Scene, in_scene

MIB = 1 << 20
TENSOR = bytes(range(256)) * (4 * MIB // 256)


@pytest.mark.parametrize("size", [2, 20_000, 600_000, 4 * MIB])
@in_scene(tls=True)
async def test_bodies_of_any_size_go_both_ways(scene: Scene, size: int) -> None:
    async def script(call: Received) -> None:
        await call.read()
        call.write(reply(TENSOR[:size], f"X-Digest: {call.digest}"))

    scene.a.script = script
    client = await scene.connect(limit=8 * MIB)
    for _ in range(3):
        answer = await client.ask(request(TENSOR[:size]))
        assert answer.body == TENSOR[:size]
        assert (scene.log.last.received, scene.log.last.answered) == (size, size)
    assert len({call.digest for call in scene.a.requests}) == 1


@in_scene(tls=True)
async def test_heads_are_known_and_follow_patterns_as_ever(scene: Scene) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    for _ in range(3):
        assert (await client.ask(request(b"[]"))).body == b"[]"
    for number in range(4):
        assert (await client.ask(request(b"[]", f"Traceparent: {number}"))).status == 200
    assert len(scene.listener.heads) == 1
    assert len(scene.listener._patterns) == 1


@in_scene(tls=True)
async def test_chunks_pipelining_and_questions_work(scene: Scene) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    live = request(b"", path="/v2/health/live", method="GET")
    await client.send(chunked(b"12", b"34") + live + request(b"56"))
    bodies = [(await client.answer()).body for _ in range(3)]
    assert bodies == [b"1234", b'{"live":true}', b"56"]


@in_scene(tls=True)
async def test_a_large_body_that_comes_slowly_is_passed_on_as_it_comes(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request(TENSOR[:MIB], length=4 * MIB))
    call = await hand.call()
    await call.read_some(MIB)
    await client.send(TENSOR[MIB:])
    await call.read()
    assert call.size == 4 * MIB
    call.write(reply())
    assert (await client.answer()).status == 200
    hand.done(call)


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


@in_scene(tls=True)
async def test_an_event_goes_on_before_the_next_one_has_come(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request(path="/v2/models/m/generate_stream"))
    call = await hand.call()
    await call.read()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    call.write(head + b"\r\n" + chunk(b"data: 1\n\n"))
    await client.head()
    assert await client.reader.readuntil(b"\n\n\r\n") == chunk(b"data: 1\n\n")
    call.write(b"0\r\n\r\n")
    assert await client.reader.readuntil(b"\r\n\r\n") == b"0\r\n\r\n"
    hand.done(call)


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
