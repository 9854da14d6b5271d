"""Requests of one connection: pipelined, the last one, and those that offer another protocol."""

import sys

from builders import until
from listeners.http_messages import (
    CHUNKED,
    GOOD,
    INFER,
    SMUGGLED,
    chunk,
    chunked,
    get,
    reply,
    request,
)
from listeners.http_replicas import answering, echoes
from listeners.http_scene import Scene, in_scene

HEALTH = get("/v2/health/live")


# --- one after the other --------------------------------------------------------------------------
@in_scene()
async def test_answers_come_in_the_order_of_the_requests_whoever_gives_them(scene: Scene) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    unknown = request(path="/v2/models/nope/infer")
    await client.send(
        request(b"1") + HEALTH + unknown + chunked(b"2", b"3") + HEALTH + unknown + request(b"4")
    )
    live, error = (200, b'{"l'), (404, b'{"e')
    expected = [(200, b"1"), live, error, (200, b"23"), live, error, (200, b"4")]
    for one in expected:
        answer = await client.answer()
        assert (answer.status, answer.body[:3]) == one


@in_scene()
async def test_more_requests_than_the_stack_is_deep_are_answered_in_turn(scene: Scene) -> None:
    count = sys.getrecursionlimit() + 100  # a call that is served within another one fails
    for data, status in (
        (request(path="/v2/models/nope/infer"), 404),
        (request(b"", path="/v2/x"), 404),
        (request(), 200),
    ):
        client = await scene.connect()
        client.writer.write(data * count)
        for _ in range(count):
            assert (await client.answer()).status == status, data


@in_scene()
async def test_while_an_answer_is_awaited_no_more_than_one_read_is_taken(scene: Scene) -> None:
    client, hand, call = await scene.begin(request(b"1"))
    client.writer.write(request(bytes(1000)) * 20_000)
    await until(lambda: any(one.is_request_paused for one in scene.listener.clients))
    await scene.until_read()
    assert scene.listener.held < 1 << 20
    assert len(scene.a.requests) == 1
    client.reset()
    await scene.until_swept(lambda: not scene.listener.clients)
    call.write(reply())  # until then the call keeps its slot
    hand.done(call)
    await scene.until_swept(lambda: scene.is_at_rest)


@in_scene()
async def test_garbage_behind_requests_is_refused_after_their_answers(scene: Scene) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    await client.send(request(b"1") + request(b"2") + b"garbage\r\n\r\n" + request(b"3"))
    assert [(await client.answer()).body for _ in range(2)] == [b"1", b"2"]
    last = await client.answer()
    assert (last.status, last.header("connection")) == (400, "close")
    assert await client.rest() == b""
    assert scene.a.bodies == [b"1", b"2"]


@in_scene()
async def test_a_pipelined_request_that_breaks_is_refused_in_its_turn(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    bad = CHUNKED + b"1\r\na\r\nx\r\n"
    await client.send(request(b"1") + bad + SMUGGLED)
    call = await hand.call()
    await hand.answer(call)
    assert (await client.answer()).status == 200
    assert (await client.answer()).status == 400
    assert await client.rest() == b""
    assert len(scene.a.requests) == 1


# --- keep-alive -----------------------------------------------------------------------------------
@in_scene()
async def test_the_last_request_of_a_connection_is_answered_as_the_last(scene: Scene) -> None:
    for path in (INFER, "/v2/nothing", "/v2/models/nope/infer"):
        for headers, version in (
            (("Connection: close",), "1.1"),
            ((), "1.0"),
            (("Connection: keep-alive",), "1.0"),
        ):
            client = await scene.connect()
            await client.send(request(b"{}", *headers, version=version, path=path) + SMUGGLED)
            answer = await client.answer()
            assert answer.status == (200 if path == INFER else 404), (path, headers)
            assert answer.header("connection") == "close"
            assert await client.rest() == b""
    assert len(scene.a.requests) == 3
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(GOOD) + b"0\r\n\r\n"
    scene.a.script = answering(chunks)  # which an older client never gets
    answer = await scene.ask(request(version="1.0"))
    assert (answer.body, answer.is_chunked, answer.header("content-length")) == (GOOD, False, None)


# --- upgrades -------------------------------------------------------------------------------------
OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQBAAAA")


@in_scene()
async def test_a_client_that_offers_http2_is_answered_over_http1(scene: Scene) -> None:
    """Java's HttpClientConnection does, with every first request."""
    for path, status in ((INFER, 200), ("/v2/models/nope/infer", 404)):
        for cut in (0, 1, 20, 200, -1):
            client = await scene.connect()
            data = request(b"abc", *OFFER, path=path)
            await client.send(data[:cut], data[cut:])
            assert (await client.answer()).status == status, (path, cut)
            assert (await client.ask(request(b"next"))).status == 200  # and goes on
            if status == 200:
                first, second = scene.a.requests[-2:]
                assert (first.body, second.body) == (b"abc", b"next"), cut
                names = {name for name, _ in first.headers}
                assert {"Host", "Content-Length"} <= names
                assert names <= {"Host", "Content-Length", "http2-settings"}


@in_scene()
async def test_an_offer_hides_no_framing_and_what_else_is_said_stays_in_force(
    scene: Scene,
) -> None:
    scene.a.script = echoes
    for data in (chunked(b"abc", b"d", headers=OFFER), request(b"abcd", *OFFER)):
        client = await scene.connect()
        await client.send(data + request(b"next"))
        assert [(await client.answer()).body for _ in range(2)] == [b"abcd", b"next"]
    client = await scene.connect()
    await client.send(request(b"{}", "Connection: Upgrade, close", "Upgrade: h2c") + SMUGGLED)
    assert (await client.answer()).header("connection") == "close"
    assert await client.rest() == b""
    client = await scene.connect()
    await client.send(request(b"0\r\n\r\n", *OFFER, "Transfer-Encoding: chunked") + SMUGGLED)
    assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
    assert len(scene.a.requests) == 5
