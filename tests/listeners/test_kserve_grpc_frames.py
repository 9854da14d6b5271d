"""The gRPC listener and frames that break a rule: a typed error, and nothing else is harmed."""

import asyncio
import itertools
import struct

import pytest
from builders import until
from grpc_wire import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INFER,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Client,
    block,
    frame,
    goaway,
    infer,
    message,
    request_block,
    reset,
    settings,
    window,
)
from listeners.grpc_scene import ONE, Scene, in_scene, send, stage
from loops import on_loops

PROTOCOL, FLOW, CLOSED, SIZE, REFUSED = 1, 3, 5, 6, 7
COMPRESSION, CALM = 9, 11
WHOLE = message(infer())
HEAD = request_block(INFER)
OPEN = frame(HEADERS, END_HEADERS, 1, HEAD)
CALL = OPEN + frame(DATA, END_STREAM, 1, WHOLE)


def priority(stream: int, on: int) -> bytes:
    return frame(PRIORITY, 0, stream, struct.pack(">IB", on, 1))


async def closed(client: Client) -> None:
    await until(lambda: client.is_closed)


def goodbyes(client: Client) -> list[int]:
    """The error codes of its GOAWAYs."""
    return [one.code for one in client.of(GOAWAY)]


BROKEN_CONNECTIONS: list[tuple[bytes, int]] = [
    (frame(DATA, 0, 1, b"x"), PROTOCOL),
    (frame(DATA, 0, 0, b"x"), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 0, HEAD), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 2, HEAD), PROTOCOL),
    (frame(CONTINUATION, END_HEADERS, 1, HEAD), PROTOCOL),
    (frame(HEADERS, 0, 1, HEAD) + frame(PING, 0, 0, bytes(8)), PROTOCOL),
    (frame(HEADERS, 0, 1, HEAD) + frame(CONTINUATION, END_HEADERS, 3), PROTOCOL),
    (frame(HEADERS, 0, 1, HEAD) + frame(DATA, 0, 1, b"x"), PROTOCOL),
    (frame(HEADERS, PADDED | END_HEADERS, 1, b"\xff" + HEAD), PROTOCOL),
    (frame(HEADERS, PADDED | END_HEADERS, 1), SIZE),
    (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + HEAD), PROTOCOL),
    (frame(SETTINGS, 0, 1), PROTOCOL),
    (frame(SETTINGS, 0, 0, b"12345"), SIZE),
    (frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    (settings(push=2), PROTOCOL),
    (settings(window=1 << 31), FLOW),
    (settings(frame=100), PROTOCOL),
    (settings(frame=1 << 24), PROTOCOL),
    (frame(PING, 0, 0, b"short"), SIZE),
    (frame(PING, 0, 1, bytes(8)), PROTOCOL),
    (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    (frame(GOAWAY, 0, 0, bytes(4)), SIZE),
    (window(0, 0), PROTOCOL),
    (window(0, (1 << 31) - 1), FLOW),
    (window(1, 1), PROTOCOL),
    (frame(WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    (reset(1), PROTOCOL),
    (reset(0), PROTOCOL),
    (OPEN + frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
    (OPEN + frame(DATA, PADDED, 1), SIZE),
    (OPEN + frame(DATA, PADDED, 1, b"\x05abc"), PROTOCOL),
    (OPEN + struct.pack(">IBI", (1 << 18) + 1 << 8, 0, 1), SIZE),
    (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), COMPRESSION),
    (frame(HEADERS, END_HEADERS, 1, b"\xc0"), COMPRESSION),
    (frame(HEADERS, END_HEADERS, 1, b"\x00\x8f" + bytes(3)), COMPRESSION),
    (frame(HEADERS, END_HEADERS, 1, bytes(20_000)), CALM),
    (frame(HEADERS, 0, 1, bytes(9000)) + frame(CONTINUATION, 0, 1, bytes(9000)), CALM),
    (frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 6, CALM),
    (frame(PING, 0, 0, bytes(8)) * 60, CALM),
    (settings() * 60, CALM),
    (OPEN + frame(DATA, 0, 1) * 60, CALM),
    (window(0, 1) * 60, CALM),
    (OPEN + window(1, 1) * 60, CALM),
    (priority(1, 3) * 60, CALM),
    (frame(200, 0, 0, b"x") * 60, CALM),
    (frame(SETTINGS, 0, 0, bytes(6 * 65)), CALM),
]  # fmt: skip


@pytest.mark.parametrize("cut", [1, 1 << 20])
@in_scene(ONE)
async def test_a_broken_rule_of_the_connection_is_named_in_a_goaway(scene: Scene, cut: int) -> None:
    for sent, code in BROKEN_CONNECTIONS:
        client = await scene.client()
        for at in range(0, len(sent), cut):
            client.send(sent[at : at + cut])
        await closed(client)
        assert goodbyes(client) == [code], sent
    client = await scene.client(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await closed(client)
    assert goodbyes(client) == [PROTOCOL]


@in_scene(ONE)
async def test_some_rules_are_not_broken(scene: Scene) -> None:
    for case, frames in {
        "the largest window": [OPEN, settings(window=(1 << 31) - 1)],
        "unknown frames and settings": [
            *(frame(0x42, 0xFF, 1, bytes(100_000)), OPEN),
            frame(SETTINGS, 0, 0, b"\x42\x42" + bytes(4)),
        ],
        "a goodbye, which lets calls end": [OPEN, goaway(0)],
    }.items():
        client = await scene.client()
        client.send(*frames)
        await until(client.ping())
        client.send(frame(DATA, END_STREAM, 1, WHOLE))
        [received] = await scene.over(client, 1)
        assert (goodbyes(client), received.status) == ([], 0), case


def heads(*changes: tuple[str, str | None]) -> bytes:
    """The block of a call with fields changed, added or (None) left out."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": INFER,
        ":authority": "x",
        "content-type": "application/grpc",
    }
    for name, value in changes:
        if value is None:
            del fields[name]
        else:
            fields[name] = value
    return block(*fields.items())


BROKEN_STREAMS: list[tuple[bytes, int]] = [
    (frame(HEADERS, END_HEADERS, 1, heads((":method", None))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads((":path", None))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads((":scheme", None))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads((":path", ""))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads((":status", "200"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads() + heads()), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads() + block((":path", "/"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads(("X-Capital", "1"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads(("x y", "1"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads(("", "1"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads(("connection", "close"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads(("transfer-encoding", "chunked"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads(("te", "gzip"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS, 1, heads(("content-length", "x"))), PROTOCOL),
    (OPEN + window(1, 0), PROTOCOL),
    (OPEN + window(1, (1 << 31) - 1), FLOW),
    (OPEN + priority(1, 1), PROTOCOL),
    (OPEN + frame(PRIORITY, 0, 1, b"1234"), SIZE),
    (OPEN + frame(HEADERS, END_HEADERS, 1, block(("x", "1"))), PROTOCOL),
    (frame(HEADERS, END_HEADERS | PRIORITISED, 1, struct.pack(">IB", 1, 1) + HEAD), PROTOCOL),
]  # fmt: skip


@in_scene(ONE)
async def test_a_broken_rule_of_a_stream_costs_that_stream_alone(scene: Scene) -> None:
    for sent, code in BROKEN_STREAMS:
        client = await scene.client()
        client.send(sent)
        [received] = await scene.over(client, 1)
        assert received.reset == code, sent
        assert (await scene.call(client, 3)).status == 0, sent


@in_scene(ONE)
async def test_frames_on_a_stream_that_is_gone_are_ignored(scene: Scene) -> None:
    trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, block(("x", "1")))
    data = frame(DATA, END_STREAM, 1, b"x")
    for late in (data, window(1, 5), reset(1), priority(1, 3), trailers):
        client = await scene.client()
        await scene.call(client, 1)
        client.send(late)
        assert (await scene.call(client, 3)).status == 0, late


@in_scene(ONE)
async def test_more_than_a_streams_window_or_data_behind_its_end_resets_it(scene: Scene) -> None:
    scene.triton.greeting = b""  # nothing goes on, so no credit comes back
    client = await scene.client()
    client.open(1)
    send(client, message(infer(size=1 << 21))[: 65 << 14], ends=False)
    client.call(3)
    client.send(frame(DATA, 0, 3, b"x"))
    resets = [received.reset for received in await scene.over(client, 1, 3)]
    assert resets == [FLOW, CLOSED]


def padded(payload: bytes, padding: int) -> bytes:
    return bytes((padding,)) + payload + bytes(padding)


@in_scene(ONE)
async def test_frames_may_be_cut_anywhere_and_padding_and_priorities_go_nowhere(
    scene: Scene,
) -> None:
    flags = END_HEADERS | PADDED | PRIORITISED
    odd = [
        frame(HEADERS, flags, 1, padded(struct.pack(">IB", 0, 1) + HEAD, padding))
        + frame(DATA, PADDED, 1, padded(WHOLE[:9], padding))
        + frame(DATA, PADDED, 1, padded(b"", padding))
        + frame(DATA, PADDED | END_STREAM, 1, padded(WHOLE[9:], padding))
        for padding in (0, 1, 255)
    ]
    for sent, cut in itertools.product((CALL, *odd), (1, 2, 3, 7, 64, 1 << 20)):
        client = await scene.client()
        await until(client.ping())  # our settings have come, and nothing of ours comes between
        for at in range(0, len(sent), cut):
            client.send(sent[at : at + cut])
            await asyncio.sleep(0)
        [received] = await scene.over(client, 1)
        assert received.status == 0, (sent, cut)
        assert scene.triton.messages[-1].startswith(infer())


@in_scene(ONE, head=1 << 16)
async def test_a_header_block_may_come_and_goes_on_in_several_frames(scene: Scene) -> None:
    head = request_block(INFER, ("x-large", "v" * 20_000))
    client = await scene.client()
    client.send(
        frame(HEADERS, 0, 1, head[:10]),
        frame(CONTINUATION, 0, 1, head[10:10_000]),
        frame(CONTINUATION, END_HEADERS, 1, head[10_000:]),
        frame(DATA, END_STREAM, 1, WHOLE),
    )
    [received] = await scene.over(client, 1)
    assert received.status == 0
    assert scene.triton.calls[0].heads[0]["x-large"] == "v" * 20_000


@in_scene(ONE)
async def test_cancelled_calls_and_deadlines_that_pass_are_no_flood(scene: Scene) -> None:
    client = await scene.unanswered()
    stream = 3
    for _ in range(9):
        numbers = range(stream, stream + 40, 2)
        for number in numbers:
            client.call(number)
        await until(lambda: sum(one.ended for one in scene.triton.calls) == 21)
        client.send(*(reset(number) for number in numbers))
        await until(client.ping())
        for peer in scene.triton.peers:
            for number in [n for n in peer.streams if n > 1]:
                scene.triton.answer(number, peer=peer)
                del peer.streams[number]
        await until(lambda: scene.plane.loads.total == 1)
        stream += 40
    scene.triton.answer(1, peer=scene.triton.peers[0])
    [first] = await scene.over(client, 1)
    assert (goodbyes(client), first.status) == ([], 0)


@on_loops()
async def test_a_client_that_exceeds_a_limit_gets_the_answers_to_its_running_calls() -> None:
    for what, most in (("a stream", 20), ("a call", 200), ("control frames", 300)):
        async with stage(ONE, cancel="forward", pings=300) as scene:
            await _exceeds_a_limit(scene, what, most)


async def _exceeds_a_limit(scene: Scene, what: str, most: int) -> None:
    client = await scene.unanswered()
    await until(lambda: any(one.ended for one in scene.triton.calls))
    stream, count = 1, 0
    while not client.of(GOAWAY):
        count += 1
        if what == "control frames":
            await until(client.ping())
            continue
        stream += 2
        client.call(stream) if what == "a call" else client.open(stream)
        client.send(reset(stream))
        await until(client.ping())
        for slot in tuple(scene.plane.gateway.kept):
            slot.free()
    client.call(stream + 2)
    await until(client.ping())
    scene.triton.answer(1)
    [first] = await scene.over(client, 1)
    scene.sweep()
    await closed(client)
    assert len(scene.triton.calls) == (1 + most + 1 if what == "a call" else 1), what
    assert abs(count - most) <= 1, what
    said = [(one.code, one.number - stream) for one in client.of(GOAWAY)]
    assert (first.status, said) == (0, [(CALM, 0), (0, 0)]), what


@in_scene(ONE)
async def test_a_client_that_goes_on_after_its_goaway_is_cut_off(scene: Scene) -> None:
    client = await scene.unanswered()
    for stream in range(3, 101, 2):
        client.open(stream)
        client.send(reset(stream))
    client.send(frame(PING, 0, 0, bytes(8)) * 100)
    await closed(client)
    scene.triton.answer(1)
    assert goodbyes(client) == [CALM, CALM]


@in_scene(ONE)
async def test_resets_are_counted_within_ten_seconds(scene: Scene) -> None:
    client = await scene.client()
    stream = 1
    for _ in range(5):
        for _ in range(15):
            client.open(stream)
            client.send(reset(stream))
            stream += 2
        await until(client.ping())
        scene.sweep(10.0)
    assert (await scene.call(client, stream)).status == 0


@in_scene(ONE, streams=2)
async def test_calls_beyond_the_limit_are_refused_and_the_others_go_on(scene: Scene) -> None:
    client = await scene.client()
    for stream in (1, 3, 5, 7):
        client.open(stream)
    refused = await scene.over(client, 5, 7)
    for stream in (1, 3):
        client.send(frame(DATA, END_STREAM, stream, WHOLE))
    answered = await scene.over(client, 1, 3)
    assert [one.reset for one in refused] == [REFUSED, REFUSED]
    assert [one.status for one in answered] == [0, 0]


@in_scene(ONE)
async def test_the_tables_of_both_sides_shrink_to_nothing(scene: Scene) -> None:
    client = await scene.client(PREFACE + settings(table=0))
    await scene.call(client, 1)
    client.open(3, first=b"\x20")
    client.send(frame(DATA, END_STREAM, 3, WHOLE))
    await scene.over(client, 3)
    assert [client.streams[n].status for n in (1, 3)] == [0, 0]
