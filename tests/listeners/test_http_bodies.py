"""Bodies in both directions: every size around every threshold, back-pressure, bounded memory."""

import hashlib
import random

import pytest
from listeners.http_messages import GOOD, INFER, chunk, reply, request
from listeners.http_replicas import Received, echoes
from listeners.http_scene import Scene, in_scene

from serve.listeners.http.splicing import WORTHWHILE
from serve.listeners.http.upload import JOINED, KEPT

MIB = 1 << 20
RANDOM = random.Random(7).randbytes(4 * MIB)
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n"
THRESHOLDS = [
    0, 1, 64, JOINED - 1, JOINED, JOINED + 1, KEPT - 1, KEPT, KEPT + 1,
    WORTHWHILE, WORTHWHILE + 1, 3 * MIB + 5,
]  # fmt: skip


def content(size: int) -> bytes:
    return (RANDOM * -(-size // len(RANDOM)))[:size]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def answers_with_its_digest(call: Received) -> None:
    await call.read()
    call.write(reply(b"%d %b" % (call.size, call.digest.encode())))


async def echoes_in_chunks(call: Received) -> None:
    await call.read()
    call.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for start in range(0, len(call.body), 100_000):
        call.write(chunk(call.body[start : start + 100_000]))
        await call.drain()
    call.write(b"0\r\n\r\n")


@pytest.mark.parametrize("size", THRESHOLDS)
@in_scene()
async def test_a_body_with_a_length_arrives_whole(scene: Scene, size: int) -> None:
    scene.a.script = answers_with_its_digest
    client = await scene.connect()
    body = content(size)
    for _ in range(2):  # the connections on both sides go on
        answer = await client.ask(request(body))
        assert answer.body.decode() == f"{size} {digest(body)}"
    assert scene.a.connections == 1


@pytest.mark.parametrize("size", THRESHOLDS)
@in_scene()
async def test_a_body_in_chunks_arrives_whole(scene: Scene, size: int) -> None:
    scene.a.script = answers_with_its_digest
    client = await scene.connect()
    body = content(size)
    for _ in range(2):
        client.writer.write(HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for start in range(0, size, 70_001):
            client.writer.write(chunk(body[start : start + 70_001]))
            await client.writer.drain()
        assert (await client.ask(b"0\r\n\r\n")).body.decode() == f"{size} {digest(body)}"
    assert scene.a.connections == 1


@pytest.mark.parametrize("script", [echoes, echoes_in_chunks], ids=["length", "chunks"])
@pytest.mark.parametrize("size", [one for one in THRESHOLDS if one <= WORTHWHILE])
@in_scene()
async def test_an_answer_arrives_whole(scene: Scene, size: int, script: object) -> None:
    scene.a.script = script  # type: ignore[assignment]
    client = await scene.connect()
    for _ in range(2):
        answer = await client.ask(request(content(size)))
        assert (answer.status, digest(answer.body)) == (200, digest(content(size)))
        assert answer.is_chunked is (script is echoes_in_chunks)
    assert scene.a.connections == 1


@in_scene(loops=("uvloop",))
async def test_the_largest_bodies_arrive_whole_in_both_directions(scene: Scene) -> None:
    body = content(64 * MIB)
    wanted = digest(body)
    told: list[str] = []

    async def script(call: Received) -> None:
        await call.read()
        told.append(call.digest)
        call.write(reply(body))

    scene.a.script = script
    client = await scene.connect()
    answer = await client.ask(request(body))
    assert told == [wanted]
    assert digest(answer.body) == wanted
    assert (await client.ask(request())).status == 200


@in_scene()
async def test_an_answer_until_the_end_of_the_connection_becomes_one_in_chunks(
    scene: Scene,
) -> None:
    async def script(call: Received) -> None:
        await call.read()
        call.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + GOOD)
        call.close()

    scene.a.script = script
    client = await scene.connect()
    answers = [await client.ask(request()) for _ in range(2)]
    assert [(one.status, one.body, one.is_chunked) for one in answers] == [(200, GOOD, True)] * 2
    assert scene.a.connections == 2


@pytest.mark.parametrize("size", [100, KEPT, WORTHWHILE, 3 * MIB])
@in_scene()
async def test_a_large_body_behind_a_pipelined_request_arrives_whole(
    scene: Scene, size: int
) -> None:
    """The head and the body's beginning wait in the row; the kernel moves the rest."""
    scene.a.script = answers_with_its_digest
    client = await scene.connect()
    body = content(size)
    both = request(b"1") + request(body)
    client.writer.write(both[: 1 << 15])
    answers = [await client.answer()]
    for start in range(1 << 15, len(both), 10_000):
        await client.send(both[start : start + 10_000])
    answers.append(await client.answer())
    answers.append(await client.ask(request(b"3")))
    told = [one.body.decode() for one in answers]
    assert told == [f"{len(one)} {digest(one)}" for one in (b"1", body, b"3")]
