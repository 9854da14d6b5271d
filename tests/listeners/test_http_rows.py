"""Requests of one connection: pipelined, the last one, and those that offer another protocol."""

import pytest
from builders import until
from listeners.http_messages import GOOD, INFER, chunk, chunked, reply, request
from listeners.http_replicas import answering, echoes
from listeners.http_scene import Scene, in_scene

POST = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n".encode()
HEALTH = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
SMUGGLED = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nwrong"


# --- one after the other --------------------------------------------------------------------------
@in_scene()
async def test_answers_come_in_the_order_of_the_requests_whoever_gives_them(scene: Scene) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    unknown = request(path="/v2/models/nope/infer")
    await client.send(
        request(b"1") + HEALTH + unknown + chunked(b"2", b"3") + HEALTH + unknown + request(b"4")
    )
    told = [(one.status, one.body[:3]) for one in [await client.answer() for _ in range(7)]]
    error = (404, b'{"e')
    assert told == [
        (200, b"1"),
        (200, b'{"l'),
        error,
        (200, b"23"),
        (200, b'{"l'),
        error,
        (200, b"4"),
    ]


@pytest.mark.parametrize(
    "data", [request(path="/v2/models/nope/infer"), request(b"", path="/v2/x"), request()]
)
@in_scene()
async def test_thousands_of_requests_in_one_read_are_answered_one_after_the_other(
    scene: Scene, data: bytes
) -> None:
    client = await scene.connect()
    count = 240_000 // len(data)
    client.writer.write(data * count)
    status = 200 if data == request() else 404
    for _ in range(count):
        assert (await client.answer()).status == status


@in_scene()
async def test_while_an_answer_is_awaited_no_more_than_one_read_is_taken(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request(b"1"))
    call = await hand.call()
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
async def test_a_pipelined_request_that_cannot_be_read_to_its_end_is_refused_in_its_turn(
    scene: Scene,
) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    bad = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nx\r\n"
    await client.send(request(b"1") + bad + SMUGGLED)
    call = await hand.call()
    await call.read()
    call.write(reply())
    hand.done(call)
    assert (await client.answer()).status == 200
    assert (await client.answer()).status == 400
    assert await client.rest() == b""
    assert len(scene.a.requests) == 1


# --- keep-alive -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("headers", "version"),
    [(("Connection: close",), "1.1"), ((), "1.0"), (("Connection: keep-alive",), "1.0")],
)
@pytest.mark.parametrize("path", [INFER, "/v2/nothing", "/v2/models/nope/infer"])
@in_scene()
async def test_the_last_request_of_a_connection_is_answered_as_the_last(
    scene: Scene, headers: tuple[str, ...], version: str, path: str
) -> None:
    client = await scene.connect()
    await client.send(request(b"{}", *headers, version=version, path=path) + SMUGGLED)
    answer = await client.answer()
    assert answer.status == (200 if path == INFER else 404)
    assert answer.header("connection") == "close"
    assert await client.rest() == b""
    assert len(scene.a.requests) == (path == INFER)


@in_scene()
async def test_an_older_client_never_gets_chunks(scene: Scene) -> None:
    scene.a.script = answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(GOOD) + b"0\r\n\r\n"
    )
    client = await scene.connect()
    answer = await client.ask(request(version="1.0"))
    assert (answer.body, answer.is_chunked, answer.header("content-length")) == (GOOD, False, None)


@in_scene()
async def test_connections_to_replicas_are_kept_open(scene: Scene) -> None:
    for _ in range(3):
        await scene.ask(request())
    assert (len(scene.a.requests), scene.a.connections) == (3, 1)


# --- upgrades -------------------------------------------------------------------------------------
OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQBAAAA")


@pytest.mark.parametrize("cut", [0, 1, 20, 200, -1])
@pytest.mark.parametrize("path", [INFER, "/v2/models/nope/infer"])
@in_scene()
async def test_a_client_that_offers_http2_is_answered_over_http1(
    scene: Scene, cut: int, path: str
) -> None:
    """Java's HttpClient does, with every first request."""
    client = await scene.connect()
    data = request(b"abc", *OFFER, path=path)
    await client.send(data[:cut], data[cut:])
    status = 200 if path == INFER else 404
    assert (await client.answer()).status == status
    assert (await client.ask(request(b"next"))).status == 200  # and goes on
    if path == INFER:
        assert scene.a.bodies == [b"abc", b"next"]
        names = [name for name, _ in scene.a.requests[0].headers]
        assert names == ["Host", "http2-settings", "Content-Length"] or names == [
            "Host",
            "Content-Length",
        ]


@pytest.mark.parametrize("data", [chunked(b"abc", b"d", headers=OFFER), request(b"abcd", *OFFER)])
@in_scene()
async def test_an_offer_hides_no_framing(scene: Scene, data: bytes) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    await client.send(data + request(b"next"))
    assert (await client.answer()).body == b"abcd"
    assert (await client.answer()).body == b"next"
    assert len(scene.a.requests) == 2


@in_scene()
async def test_what_else_such_a_client_says_of_its_connection_stays_in_force(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(request(b"{}", "Connection: Upgrade, close", "Upgrade: h2c") + SMUGGLED)
    assert (await client.answer()).header("connection") == "close"
    assert await client.rest() == b""
    assert len(scene.a.requests) == 1


@in_scene()
async def test_an_offer_with_two_framings_is_refused(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(request(b"0\r\n\r\n", *OFFER, "Transfer-Encoding: chunked") + SMUGGLED)
    assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
    assert scene.a.requests == []
