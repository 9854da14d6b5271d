"""Answers that come before the body, and clients that wait to send it."""

import pytest
from builders import until
from listeners.http_messages import GOOD, INFER, reply, request
from listeners.http_replicas import Received
from listeners.http_scene import Scene, in_scene

MIB = 1 << 20
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n".encode()


# --- early answers --------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [600_000, 8 * MIB])
@in_scene()
async def test_an_answer_that_comes_before_the_body_is_complete_reaches_the_client(
    scene: Scene, size: int
) -> None:
    async def script(call: Received) -> None:
        call.write(reply(b'{"error":"no"}', status=400))
        await call.drain()
        call.close()

    scene.a.script = script
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size // 2))
    answer = await client.answer()
    assert (answer.status, answer.body) == (400, b'{"error":"no"}')
    assert answer.header("connection") == "close"
    assert await client.rest() == b""


@in_scene()
async def test_a_body_that_goes_on_after_an_early_answer_resets_nothing(scene: Scene) -> None:
    """The client is still sending when it is answered: what it sends is read and dropped."""
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: 3000000\r\n\r\n" + bytes(500_000))
    call = await hand.call()
    call.write(reply(status=400))
    await until(lambda: scene.is_at_rest)
    await client.send(bytes(2_500_000))
    assert (await client.answer()).status == 400
    call.close()
    hand.done(call)


@pytest.mark.parametrize("size", [600_000, 3 * MIB])
@in_scene()
async def test_a_request_goes_on_while_its_answer_comes(scene: Scene, size: int) -> None:
    """A long answer that begins early: both run to their ends, and the connection closes."""
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size // 2))
    call = await hand.call()
    call.write(reply(b"", length=8))
    await call.drain()
    call.write(b"1234")
    assert (await client.head()).status == 200
    await client.send(bytes(size - size // 2))
    await call.read()
    call.write(b"5678")
    hand.done(call)
    assert await client.rest() == b"12345678"


# --- Expect: 100-continue -------------------------------------------------------------------------
@in_scene()
async def test_a_client_that_waits_is_told_to_go_on_once(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(request(b"", "Expect: 100-continue", length=4))
    assert (await client.answer()).status == 100
    await client.send(b"ab", b"cd")
    assert (await client.answer()).body == GOOD
    assert scene.a.bodies == [b"abcd"]
    assert scene.a.requests[0].header("expect") is None


@in_scene()
async def test_a_client_that_does_not_wait_is_not_told_to_go_on(scene: Scene) -> None:
    client = await scene.connect()
    assert (await client.ask(request(b"abcd", "Expect: 100-continue"))).status == 200


@pytest.mark.parametrize("path", ["/v2/models/nope/infer", "/v2/nothing"])
@in_scene()
async def test_a_client_that_waits_for_a_call_that_is_refused_is_told_and_closed(
    scene: Scene, path: str
) -> None:
    """Whether the body will still come is not known: no next request could be told from it."""
    client = await scene.connect()
    await client.send(request(b"", "Expect: 100-continue", path=path, length=4))
    answer = await client.answer()
    assert (answer.status, answer.header("connection")) == (404, "close")
    assert await client.rest() == b""


@in_scene()
async def test_an_older_client_is_never_told_to_go_on(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(request(b"", "Expect: 100-continue", length=2, version="1.0"), b"{}")
    assert (await client.answer()).status == 200
