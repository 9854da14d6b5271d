"""Bodies in both directions, in clear and over TLS: every size, and who begins before whom."""

import hashlib

import pytest
from builders import until
from listeners.http_messages import CHUNKED, GOOD, HEAD, MIB, chunk, content, reply, request
from listeners.http_replicas import Received, answering, answering_by, breaking_off, echoes
from listeners.http_scene import Scene, in_scene

from serve.listeners.http.predict_call import JOINED, KEPT
from serve.listeners.http.splice import WORTHWHILE

THRESHOLDS = [
    0, 1, 64, JOINED - 1, JOINED, JOINED + 1, KEPT - 1, KEPT, KEPT + 1,
    WORTHWHILE, WORTHWHILE + 1, 3 * MIB + 5,
]  # fmt: skip


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


answers_with_its_digest = answering_by(
    lambda call: reply(b"%d %b" % (call.size, call.digest.encode()))
)


async def echoes_in_chunks(call: Received) -> None:
    await call.read()
    call.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for start in range(0, len(call.body), 100_000):
        call.write(chunk(call.body[start : start + 100_000]))
        await call.drain()
    call.write(b"0\r\n\r\n")


@pytest.mark.parametrize("is_chunked", [False, True])
@in_scene()
async def test_a_body_arrives_whole(scene: Scene, is_chunked: bool) -> None:
    scene.a.script = answers_with_its_digest
    client = await scene.connect()
    for size in THRESHOLDS:
        body = content(size)
        for _ in range(2):  # the connections on both sides go on
            if is_chunked:
                client.writer.write(CHUNKED)
                for start in range(0, size, 70_001):
                    await client.send(chunk(body[start : start + 70_001]))
            answer = await client.ask(b"0\r\n\r\n" if is_chunked else request(body))
            assert answer.body.decode() == f"{size} {digest(body)}"
    assert scene.a.connections == 1


@in_scene()
async def test_an_answer_arrives_whole(scene: Scene) -> None:
    client = await scene.connect()
    for script in (echoes, echoes_in_chunks):
        scene.a.script = script
        for size in (one for one in THRESHOLDS if one <= WORTHWHILE):
            for _ in range(2):
                answer = await client.ask(request(content(size)))
                assert (answer.status, digest(answer.body)) == (200, digest(content(size))), size
                assert answer.is_chunked is (script is echoes_in_chunks), size
    assert scene.a.connections == 1
    # one that ends with its connection becomes chunks
    scene.a.script = breaking_off(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + GOOD)
    answers = [await client.ask(request()) for _ in range(2)]
    assert [(one.status, one.body, one.is_chunked) for one in answers] == [(200, GOOD, True)] * 2
    assert scene.a.connections == 2


@in_scene(loops=("uvloop",))
async def test_the_largest_bodies_arrive_whole_in_both_directions(scene: Scene) -> None:
    body = content(24 * MIB)
    wanted = digest(body)
    scene.a.script = answering(reply(body))
    client = await scene.connect()
    answer = await client.ask(request(body))
    assert scene.a.requests[0].digest == wanted
    assert digest(answer.body) == wanted
    assert (await client.ask(request())).status == 200


@in_scene()
async def test_a_large_body_behind_a_pipelined_request_arrives_whole(scene: Scene) -> None:
    """The head and the body's beginning wait in the row; the kernel moves the rest."""
    scene.a.script = answers_with_its_digest
    for size in (100, KEPT, WORTHWHILE, 3 * MIB):
        client = await scene.connect()
        body = content(size)
        both = request(b"1") + request(body)
        client.writer.write(both[: 1 << 15])
        answers = [await client.answer()]
        for start in range(1 << 15, len(both), 10_000):
            await client.send(both[start : start + 10_000])
        answers += [await client.answer(), await client.ask(request(b"3"))]
        said = [one.body.decode() for one in answers]
        assert said == [f"{len(one)} {digest(one)}" for one in (b"1", body, b"3")], size


# --- answers that come before the body ------------------------------------------------------------
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
    client, hand, call = await scene.begin(
        HEAD + b"Content-Length: 3000000\r\n\r\n" + bytes(500_000)
    )
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
    client, hand, call = await scene.begin(
        HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size // 2)
    )
    call.write(reply(b"", length=8))
    await call.drain()
    call.write(b"1234")
    assert (await client.head()).status == 200
    await client.send(bytes(size - size // 2))
    await hand.answer(call, b"5678")
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
    assert (await client.ask(request(b"abcd", "Expect: 100-continue"))).status == 200
    older = await scene.connect()  # is never told
    await older.send(request(b"", "Expect: 100-continue", length=2, version="1.0"), b"{}")
    assert (await older.answer()).status == 200


@in_scene()
async def test_a_client_that_waits_for_a_refused_call_is_disconnected(scene: Scene) -> None:
    """Whether the body will still come is not known: it could be taken for the next request."""
    for path in ("/v2/models/nope/infer", "/v2/nothing"):
        client = await scene.connect()
        await client.send(request(b"", "Expect: 100-continue", path=path, length=4))
        answer = await client.answer()
        assert (answer.status, answer.header("connection")) == (404, "close"), path
        assert await client.rest() == b""


# --- over TLS, where the kernel moves no bodies ---------------------------------------------------

TENSOR = bytes(range(256)) * (4 * MIB // 256)


@in_scene(tls=True)
async def test_bodies_of_any_size_go_both_ways(scene: Scene) -> None:
    scene.a.script = answering_by(lambda call: reply(TENSOR[: call.size]))
    client = await scene.connect(limit=8 * MIB)
    for size in (2, 20_000, 600_000, 4 * MIB):
        for _ in range(3):
            answer = await client.ask(request(TENSOR[:size]))
            assert answer.body == TENSOR[:size]
            assert scene.a.requests[-1].digest == digest(TENSOR[:size])
            assert (scene.log.last.received, scene.log.last.answered) == (size, size)


@in_scene(tls=True, send_buffer=1 << 14)
async def test_a_client_that_reads_slowly_pauses_its_replica(scene: Scene) -> None:
    scene.a.script = answering(reply(TENSOR * 4))
    client = await scene.connect(limit=1 << 14, receive_buffer=1 << 14)
    await client.send(request())
    await until(lambda: any(one.is_reading_paused for one in scene.upstreams))
    assert (await client.answer()).body == TENSOR * 4


@in_scene(tls=True, limits={"body": 100})
async def test_a_refused_client_that_still_sends_gets_its_answer(scene: Scene) -> None:
    """There is no half of a TLS connection to close: what still comes is dropped until it ends."""
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % (4 * MIB))
    await client.send(TENSOR[:MIB])
    answer = await client.answer()
    assert (answer.status, answer.code) == (413, "body_too_large")
    scene.pass_time(3.0)
    await client.rest()
    assert scene.a.requests == []


@pytest.mark.parametrize("leave", ["close", "reset"])
@in_scene(tls=True)
async def test_a_client_that_leaves_ends_its_call(scene: Scene, leave: str) -> None:
    client, hand, call = await scene.begin(request())
    await call.read()
    getattr(client, leave)()
    await until(lambda: bool(scene.log.lines))
    assert scene.log.lines[-1][1] == "client_left"
    call.write(reply())
    await until(lambda: scene.is_at_rest)
    hand.done_all()
