"""What one client may ask of a worker: every size and count has its end, and is told."""

import errno
import gzip
import itertools
import os
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from builders import until
from listeners.http_messages import CHUNKED, GOOD, INFER, MIB, chunk, chunked, reply, request
from listeners.http_messages import HEAD as POST
from listeners.http_replicas import Received, answering_by
from listeners.http_scene import Scene, in_scene

SMALL = {"head": 1000}


# --- heads ----------------------------------------------------------------------------------------
HEADS: dict[str, bytes] = {
    "one header": POST + b"X-A: " + b"a" * 2000 + b"\r\n",
    "many headers": POST + b"X-A: 1\r\n" * 250,
    "a target": b"POST /" + b"a" * 2000 + b" HTTP/1.1\r\n",
    "a name": POST + b"a" * 2000 + b": 1\r\n",
    "lines before it": b"\r\n" * 1000,
}


@in_scene(limits=SMALL)
async def test_a_head_beyond_the_limit_is_refused(scene: Scene) -> None:
    ways = itertools.product(HEADS, (b"Content-Length: 2\r\n\r\n{}", b""), (100, 1 << 16))
    for kind, end, step in ways:
        client = await scene.connect()
        await client.ask(request())  # nothing is left of an earlier request
        count, data = len(scene.a.requests), HEADS[kind] + end
        if kind == "lines before it":
            data = HEADS[kind] + POST + end
            step = 100  # what comes in one read with a head that is complete is gone
        await scene.feed(client, data[:900], 900)
        await scene.feed(client, data[900:], step)
        assert await client.refusal() == (431, "head_too_large"), (kind, end, step)
        assert len(scene.a.requests) == count, (kind, end, step)


@in_scene(limits=SMALL)
async def test_a_head_within_the_limit_is_taken_whatever_came_before(scene: Scene) -> None:
    for before in (b"", request(bytes(5000)), chunked(*[b"x"] * 500)):
        client = await scene.connect()
        data = before + POST + b"X-A: " + b"a" * 850 + b"\r\nContent-Length: 2\r\n\r\n{}"
        await scene.feed(client, data, 333)
        for _ in range(2 if before else 1):
            assert (await client.answer()).status == 200


@in_scene(limits=SMALL)
async def test_a_large_body_behind_a_head_costs_no_head(scene: Scene) -> None:
    client = await scene.connect()
    for _ in range(3):
        await client.send(request(bytes(500_000)) + POST)
        assert (await client.answer()).status == 200
        assert (await client.ask(b"Content-Length: 2\r\n\r\n{}")).status == 200


@in_scene(limits=SMALL)
async def test_a_pipelined_head_beyond_the_limit_is_refused_in_its_turn(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(request() + HEADS["many headers"] + b"Content-Length: 2\r\n\r\n{}")
    assert (await client.answer()).status == 200
    assert await client.refusal() == (431, "head_too_large")
    assert len(scene.a.requests) == 1


def completed(scene: Scene) -> list[Received]:
    """The requests that came to the replica whole."""
    return [call for call in scene.a.requests if call.is_complete]


@in_scene(limits=SMALL)
async def test_what_is_neither_head_nor_body_is_bounded_like_a_head(scene: Scene) -> None:
    for case, data in {
        "trailers": b"0\r\n" + b"X-A: 1\r\n" * 1000,
        "a trailer": b"0\r\nX-A: " + b"a" * 9000,
        "an extension": b"1;" + b"a" * 9000,
        "a complete extension": b"1;a=" + b"b" * 9000 + b"\r\nx\r\n0\r\n\r\n",
        "many extensions": (b"1;" + b"a" * 500 + b"\r\nx\r\n") * 20,
    }.items():
        client = await scene.connect()
        await scene.feed(client, CHUNKED + data, 700)
        assert await client.refusal() == (431, "head_too_large"), case
        assert completed(scene) == [], case


# --- bodies ---------------------------------------------------------------------------------------
@in_scene(limits={"body": 100})
async def test_a_body_beyond_the_limit_is_refused_and_never_complete(scene: Scene) -> None:
    assert (await scene.ask(request(bytes(100)))).status == 200
    for case, data in {
        "its bytes": request(bytes(101)),
        "announced": request(b"", length=101),
        "announced large": request(b"", length=1 << 63),
        "not even asked for": request(b"", "Expect: 100-continue", length=101),
        "chunks": chunked(bytes(50), bytes(51)),
        "a chunk": CHUNKED + b"fffffff\r\n" + bytes(101),
    }.items():
        client = await scene.connect()
        await client.send(data)
        assert await client.refusal() == (413, "body_too_large"), case
        assert len(completed(scene)) == 1, case


@in_scene(limits={"body": 2 * MIB})
async def test_large_bodies_beyond_the_limit_end_the_call_at_the_replica(scene: Scene) -> None:
    client = await scene.connect()
    client.writer.write(request(bytes(4 * MIB)))  # which the kernel would move
    assert await client.refusal() == (413, "body_too_large")
    assert scene.a.requests == []
    client = await scene.connect()
    client.writer.write(CHUNKED + chunk(bytes(MIB)) * 3 + b"0\r\n\r\n")
    assert await client.refusal() == (413, "body_too_large")
    await until(lambda: scene.a.open == 0)
    assert completed(scene) == []


BOMB = gzip.compress(bytes(MIB))


@in_scene(limits={"inflated": 100_000})
async def test_a_compressed_body_may_not_grow_beyond_the_limit(scene: Scene) -> None:
    small = gzip.compress(bytes(100_000))
    assert (await scene.ask(request(small, "Content-Encoding: gzip"))).status == 200
    assert scene.a.bodies == [small]  # as it is
    for encoding, bomb in (
        ("gzip", BOMB),
        ("GZIP", BOMB),
        ("deflate", zlib.compress(bytes(MIB))),
        ("gzip", gzip.compress(b"{}") * 10 + BOMB),
        ("deflate", BOMB),
    ):
        header = f"Content-Encoding: {encoding}"
        pieces = [bomb[start : start + 100] for start in range(0, len(bomb), 100)]
        for data in (request(bomb, header), chunked(*pieces, headers=(header,))):
            client = await scene.connect()
            await client.send(data[:300], data[300:])
            assert await client.refusal() == (413, "inflated_too_large"), data[:100]
            assert len(completed(scene)) == 1, data[:100]


@in_scene(limits={"chunks": 10})
async def test_a_body_may_have_so_many_chunks_and_no_more(scene: Scene) -> None:
    client = await scene.connect()
    for _ in range(2):
        assert (await client.ask(chunked(*[b"x"] * 10))).status == 200
    for path in (INFER, "/v2/nothing"):
        client = await scene.connect()
        await client.send(chunked(*[b"x"] * (11 if path == INFER else 100), path=path))
        assert await client.refusal() == (400, "bad_request")
    assert len(completed(scene)) == 2


@in_scene(limits={"in_flight": 1000})
async def test_beyond_the_bytes_that_a_worker_may_hold_calls_are_refused(scene: Scene) -> None:
    holding = await scene.connect()
    await holding.send(POST + b"Content-Length: 3000\r\n\r\n" + bytes(900))
    await until(lambda: scene.listener.held == 900)
    answer = await scene.ask(POST + b"Content-Length: 3000\r\n\r\n" + bytes(200))
    assert (answer.status, answer.code, answer.header("retry-after")) == (429, "no_room", "1")
    holding.reset()
    await until(lambda: scene.listener.held == 0)
    assert (await scene.ask(request())).status == 200


@in_scene(limits={"connections": 3})
async def test_connections_beyond_the_limit_are_closed_at_once(scene: Scene) -> None:
    clients = [await scene.connect() for _ in range(3)]
    for client in clients:
        assert (await client.ask(request())).status == 200
    beyond = await scene.connect()
    assert await beyond.rest() == b""
    clients[0].close()
    await until(lambda: len(scene.listener.clients) == 2)
    assert (await scene.ask(request())).status == 200


@in_scene()
async def test_what_a_thousand_targets_leave_behind_is_bounded(scene: Scene) -> None:
    for number in range(1100):
        for query in ("", "?" + "x" * 10_000):
            target = f"/v2/models/n{number}/infer{query}"
            assert scene.listener.predict_call(b"POST", target.encode()) is not None
    assert len(scene.listener._asked) <= 1024
    assert max(map(len, scene.listener._asked)) < 5000


# --- descriptors ----------------------------------------------------------------------------------
@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Every descriptor that this process may have is in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    taken = []
    try:
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE
                break
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@in_scene()
async def test_without_descriptors_large_bodies_pass_without_the_kernel(scene: Scene) -> None:
    large = reply(bytes(3 * MIB))
    scene.a.script = answering_by(lambda call: large if call.size > 100 else reply())
    client = await scene.connect()
    assert (await client.ask(request())).body == GOOD
    with no_descriptors_left():
        answer = await client.ask(request(bytes(3 * MIB)))
    assert (answer.status, len(answer.body)) == (200, 3 * MIB)
    assert scene.a.requests[1].size == 3 * MIB
    assert (await client.ask(request())).body == GOOD


@in_scene()
async def test_without_descriptors_a_call_without_connection_is_not_sent(scene: Scene) -> None:
    client = await scene.connect()
    await client.ask(request(path="/v2/nothing"))
    with no_descriptors_left():
        answer = await client.ask(request())
    assert (answer.status, answer.code) == (503, "no_replica")
