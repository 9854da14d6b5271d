"""The gRPC listener and frames that break a rule: a typed error, and nothing else is harmed."""

import asyncio
import struct

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INFER,
    LOOPS,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Received,
    Scene,
    block,
    frame,
    goaway,
    infer,
    message,
    play,
    request_block,
    reset,
    settings,
    window,
)

ONE = snapshot(view(target(1, "a")))
PROTOCOL, FLOW, CLOSED, SIZE, REFUSED = 1, 3, 5, 6, 7
CANCEL, COMPRESSION, CALM = 8, 9, 11
WHOLE = message(infer())
HEAD = request_block(INFER)
OPEN = frame(HEADERS, END_HEADERS, 1, HEAD)
CALL = OPEN + frame(DATA, END_STREAM, 1, WHOLE)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def priority(stream: int, on: int) -> bytes:
    return frame(PRIORITY, 0, stream, struct.pack(">IB", on, 1))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
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
        (OPEN + settings(window=(1 << 31) - 1) + window(1, 1 << 30) * 0, 0),
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
    ],
)  # fmt: skip
@pytest.mark.parametrize("cut", [1, 1 << 20])
def test_a_broken_rule_of_the_connection_is_named_in_a_goaway(
    loop: str, sent: bytes, code: int, cut: int
) -> None:
    async def scenario(scene: Scene) -> list[int]:
        client = await scene.client()
        for at in range(0, len(sent), cut):
            client.send(sent[at : at + cut])
        answered = (lambda: bool(client.of(GOAWAY))) if code else client.ping()
        await until(answered)
        if code:
            await until(lambda: client.is_closed)
        return [one.code for one in client.of(GOAWAY)]

    assert play(scenario, loop, ONE, is_quiet=bool(code)) == ([code] if code else [])


def test_what_does_not_begin_as_http2_is_closed(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        client = await scene.client(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: client.is_closed)
        return [one.code for one in client.of(GOAWAY)]

    assert play(scenario, loop, ONE) == [PROTOCOL]


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


@pytest.mark.parametrize(
    ("sent", "code"),
    [
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
    ],
)  # fmt: skip
def test_a_broken_rule_of_a_stream_costs_that_stream_alone(
    loop: str, sent: bytes, code: int
) -> None:
    async def scenario(scene: Scene) -> tuple[int | None, int]:
        client = await scene.client()
        client.send(sent)
        [received] = await scene.over(client, 1)
        after = await scene.call(client, 3)
        return received.reset, after.status

    assert play(scenario, loop, ONE) == (code, 0)


def test_data_behind_the_end_of_a_stream_resets_it(loop: str) -> None:
    async def scenario(scene: Scene) -> int | None:
        scene.triton.answers = False
        client = await scene.client()
        client.send(CALL, frame(DATA, 0, 1, b"x"))
        [received] = await scene.over(client, 1)
        return received.reset

    assert play(scenario, loop, ONE) == CLOSED


@pytest.mark.parametrize(
    "late",
    [frame(DATA, END_STREAM, 1, b"x"), window(1, 5), reset(1), priority(1, 3),
     frame(HEADERS, END_HEADERS | END_STREAM, 1, block(("x", "1")))],
)  # fmt: skip
def test_frames_on_a_stream_that_is_gone_are_ignored(loop: str, late: bytes) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        await scene.call(client, 1)
        client.send(late)
        return (await scene.call(client, 3)).status

    assert play(scenario, loop, ONE) == 0


def test_more_than_a_streams_window_resets_it(loop: str) -> None:
    async def scenario(scene: Scene) -> int | None:
        scene.triton.greeting = b""  # nothing goes on, so no credit comes back
        client = await scene.client()
        client.open(1)
        whole = message(infer(size=1 << 21))
        for at in range(0, 65 << 14, 1 << 14):
            client.send(frame(DATA, 0, 1, whole[at : at + (1 << 14)]))
        [received] = await scene.over(client, 1)
        return received.reset

    assert play(scenario, loop, ONE) == FLOW


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64])
def test_frames_may_be_cut_anywhere(loop: str, cut: int) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        await until(client.ping())  # our settings have come, and nothing of ours comes between
        for at in range(0, len(CALL), cut):
            client.send(CALL[at : at + cut])
            await asyncio.sleep(0)
        [received] = await scene.over(client, 1)
        return received

    assert play(scenario, loop, ONE).status == 0


def padded(payload: bytes, padding: int) -> bytes:
    return bytes((padding,)) + payload + bytes(padding)


@pytest.mark.parametrize("padding", [0, 1, 255])
@pytest.mark.parametrize("cut", [1, 1 << 20])
def test_padding_and_priorities_go_nowhere(loop: str, padding: int, cut: int) -> None:
    flags = END_HEADERS | PADDED | PRIORITISED
    head = padded(struct.pack(">IB", 0, 1) + HEAD, padding)
    sent = (
        frame(HEADERS, flags, 1, head)
        + frame(DATA, PADDED, 1, padded(WHOLE[:9], padding))
        + frame(DATA, PADDED, 1, padded(b"", padding))
        + frame(DATA, PADDED | END_STREAM, 1, padded(WHOLE[9:], padding))
    )

    async def scenario(scene: Scene) -> tuple[Received, bytes]:
        client = await scene.client()
        for at in range(0, len(sent), cut):
            client.send(sent[at : at + cut])
        [received] = await scene.over(client, 1)
        return received, scene.triton.calls[0].messages[0]

    received, passed = play(scenario, loop, ONE)
    assert received.status == 0
    assert passed.startswith(infer())


def test_a_header_block_may_come_in_several_frames(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        client.send(
            frame(HEADERS, 0, 1, HEAD[:10]),
            frame(CONTINUATION, 0, 1, HEAD[10:20]),
            frame(CONTINUATION, END_HEADERS, 1, HEAD[20:]),
            frame(DATA, END_STREAM, 1, WHOLE),
        )
        [received] = await scene.over(client, 1)
        return received.status

    assert play(scenario, loop, ONE) == 0


def test_large_metadata_goes_on_in_several_frames(loop: str) -> None:
    async def scenario(scene: Scene) -> str:
        client = await scene.client()
        client.call(1, metadata=[("x-large", "v" * 20_000)])
        await scene.over(client, 1)
        return scene.triton.calls[0].heads[0]["x-large"]

    assert play(scenario, loop, ONE, head=1 << 16) == "v" * 20_000


def test_unknown_frames_and_settings_are_ignored(loop: str) -> None:
    odd = frame(0x42, 0xFF, 1, bytes(100_000)) + frame(SETTINGS, 0, 0, b"\x42\x42" + bytes(4))

    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        client.send(odd)
        return (await scene.call(client, 1)).status

    assert play(scenario, loop, ONE) == 0


def test_a_flood_of_resets_ends_the_connection(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        client = await scene.client()
        for stream in range(1, 101, 2):
            client.open(stream)
            client.send(reset(stream))
        await until(lambda: client.is_closed)
        return [one.code for one in client.of(GOAWAY)]

    assert play(scenario, loop, ONE) == [CALM]


def test_cancelled_calls_and_deadlines_that_pass_are_no_flood(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[list[int], int | None]:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
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
        return [one.code for one in client.of(GOAWAY)], first.status

    assert play(scenario, loop, ONE) == ([], 0)


@pytest.mark.parametrize(
    ("what", "most"), [("a stream", 20), ("a call", 200), ("control frames", 300)]
)
def test_a_client_that_exceeds_a_limit_gets_the_answers_to_its_running_calls(
    loop: str, what: str, most: int
) -> None:
    async def scenario(scene: Scene) -> tuple[int, int | None, list[tuple[int, int]]]:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
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
        await until(lambda: client.is_closed)
        assert len(scene.triton.calls) == (1 + most + 1 if what == "a call" else 1)
        said = [(one.code, one.number - stream) for one in client.of(GOAWAY)]
        return count, first.status, said

    count, status, said = play(scenario, loop, ONE, cancel="forward", pings=300)
    assert abs(count - most) <= 1
    assert (status, said) == (0, [(CALM, 0), (0, 0)])


def test_a_client_that_goes_on_after_it_was_asked_to_go_is_cut_off(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        for stream in range(3, 101, 2):
            client.open(stream)
            client.send(reset(stream))
        client.send(frame(PING, 0, 0, bytes(8)) * 100)
        await until(lambda: client.is_closed)
        scene.triton.answer(1)
        return [one.code for one in client.of(GOAWAY)]

    assert play(scenario, loop, ONE) == [CALM, CALM]


def test_resets_are_counted_within_ten_seconds(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        stream = 1
        for _ in range(5):
            for _ in range(15):
                client.open(stream)
                client.send(reset(stream))
                stream += 2
            await until(client.ping())
            scene.sweep(10.0)
        return (await scene.call(client, stream)).status

    assert play(scenario, loop, ONE) == 0


def test_calls_beyond_the_limit_are_refused_and_the_others_go_on(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[list[int | None], list[int]]:
        client = await scene.client()
        for stream in (1, 3, 5, 7):
            client.open(stream)
        refused = await scene.over(client, 5, 7)
        for stream in (1, 3):
            client.send(frame(DATA, END_STREAM, stream, WHOLE))
        answered = await scene.over(client, 1, 3)
        return [one.reset for one in refused], [one.status for one in answered]

    assert play(scenario, loop, ONE, streams=2) == ([REFUSED, REFUSED], [0, 0])


def test_the_tables_of_both_sides_shrink_to_nothing(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        client = await scene.client(PREFACE + settings(table=0))
        await scene.call(client, 1)
        client.open(3, first=b"\x20")
        client.send(frame(DATA, END_STREAM, 3, WHOLE))
        await scene.over(client, 3)
        return [client.streams[n].status for n in (1, 3)]

    assert play(scenario, loop, ONE) == [0, 0]


def test_a_client_that_says_goodbye_still_gets_its_answers(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        client.open(1)
        client.send(goaway(0), frame(DATA, END_STREAM, 1, WHOLE))
        [received] = await scene.over(client, 1)
        return received.status

    assert play(scenario, loop, ONE) == 0
