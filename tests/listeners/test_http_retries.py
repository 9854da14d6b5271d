"""What becomes of a call when replicas refuse it, or break."""

import asyncio
import json

import pytest
from builders import replica, snapshot, target, view
from listeners.http_messages import CHUNKED, GOOD, HEAD, INFER, MIB, chunk, reply, request
from listeners.http_replicas import Received, Replica, Script, answering, answers_good, breaking_off
from listeners.http_scene import Scene, in_scene

from serve.core.snapshot import Snapshot
from serve.listeners.http.predict_call import KEPT

STOPPING = reply(b'{"error":"Server is stopping to serve requests."}', status=503)
UNKNOWN = reply(b'{"error":"Request for unknown model: \'m\' is not found"}', status=404)


def tried(scene: Scene) -> list[int]:
    return [len(one.requests) for one in scene.replicas]


def all_play(scene: Scene, script: Script) -> None:
    for one in scene.replicas:
        one.script = script


# --- another replica ------------------------------------------------------------------------------
@pytest.mark.parametrize("refusal", [STOPPING, UNKNOWN], ids=["stopping", "unknown"])
@pytest.mark.parametrize("size", [0, 2, 100_000, KEPT])
@in_scene(2)
async def test_a_call_that_was_refused_goes_to_another_replica(
    scene: Scene, size: int, refusal: bytes
) -> None:
    first: list[Replica] = []

    def script(one: Replica) -> Script:
        async def play(call: Received) -> None:
            await call.read()
            first.append(one)
            call.write(refusal if one is first[0] else reply(b"%d" % call.size))

        return play

    for one in scene.replicas:
        one.script = script(one)
    client = await scene.connect()
    body = bytes(size)
    answer = await client.ask(request(body))
    assert (answer.status, answer.body) == (200, b"%d" % size)
    assert tried(scene) == [1, 1]
    assert scene.a.bodies == scene.b.bodies == [body]
    assert (await client.ask(request())).status == 200


@pytest.mark.parametrize("size", [KEPT + 1, 3 * MIB])
@in_scene(2)
async def test_a_call_that_is_too_large_to_be_kept_is_not_sent_again(
    scene: Scene, size: int
) -> None:
    all_play(scene, answering(STOPPING))
    client = await scene.connect()
    answer = await client.ask(request(bytes(size)))
    assert (answer.status, answer.code) == (503, None)
    assert sum(tried(scene)) == 1
    assert (await client.ask(request())).status == 503  # the connection goes on


@in_scene(2)
async def test_a_refusal_while_the_kernel_moves_the_body_is_the_answer(scene: Scene) -> None:
    """Little of the body was read here, and the rest was never kept."""
    hand = scene.a.by_hand()
    scene.b.script = hand.script
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % (4 * MIB) + bytes(300_000))
    call = await hand.call()
    sending = asyncio.ensure_future(client.send(bytes(4 * MIB - 300_000)))
    await hand.answer(call, STOPPING)
    await sending
    assert (await client.answer()).status == 503
    assert sum(tried(scene)) == 1


@in_scene(2)
async def test_a_refused_call_in_chunks_goes_elsewhere_with_a_length(scene: Scene) -> None:
    hand = scene.a.by_hand()
    scene.b.script = hand.script
    client = await scene.connect()
    await client.send(CHUNKED + chunk(b"ab"))
    await scene.until_read()
    await client.send(chunk(b"c") + b"0\r\n\r\n")
    call = await hand.call()
    await hand.answer(call, STOPPING)
    again = await hand.call()
    assert again.header("content-length") == "3"
    assert (await again.read()).body == b"abc"
    again.write(reply())
    hand.done(again)
    assert (await client.answer()).status == 200


@in_scene(2)
async def test_a_call_that_all_replicas_refuse_has_the_refusal_for_an_answer(scene: Scene) -> None:
    for said, tries in (
        ("Server is stopping to serve requests.", 2),
        ("busy with something else", 1),  # a model says so itself, which has run
    ):
        before = sum(tried(scene))
        body = b'{"error":"%b"}' % said.encode()
        all_play(scene, answering(reply(body, status=503)))
        answer = await scene.ask(request())
        assert (answer.status, answer.body) == (503, body)
        assert sum(tried(scene)) - before == tries


def _with_a_closed_port() -> Snapshot:
    """`gone` listens nowhere; port 9 (discard) is closed everywhere."""
    now = snapshot(view(target(1, "a", "gone")))
    return Snapshot(1, now.models, {**now.replicas, "gone": replica("gone", http=9)})


@pytest.mark.parametrize("size", [2, KEPT, 3 * MIB])
@in_scene(_with_a_closed_port())
async def test_a_replica_that_cannot_be_reached_costs_no_call(scene: Scene, size: int) -> None:
    client = await scene.connect()
    for _ in range(4):
        assert (await client.ask(request(bytes(size)))).status == 200
        scene.plane.clock.now += 60  # it is tried again
    assert scene.count("servegate_retries_total", model="m", reason="not sent") >= 1
    assert {call.size for call in scene.a.requests} == {size}
    now = scene.plane.live.snapshot
    gone = {**now.replicas, "a": replica("a", http=9)}
    scene.plane.live.swap(Snapshot(9, now.models, gone))
    for path, method in ((INFER, "POST"), ("/v2/models/m/config", "GET")):
        answer = await client.ask(request(b"", path=path, method=method))
        assert (answer.status, answer.code) == (503, "no_replica")


# --- nobody knows what happened -------------------------------------------------------------------
async def closes_early(call: Received) -> None:
    call.close()


BROKEN: dict[str, Script] = {
    "reset": breaking_off(resets=True),
    "closed": breaking_off(),
    "closed before the body": closes_early,
    "head cut off": breaking_off(b"HTTP/1.1 200 OK\r\nContent-Ty"),
    "no HTTP": breaking_off(b"nothing of the kind\r\n\r\n"),
    "two lengths": breaking_off(reply(GOOD, "Content-Length: 1")),
    "longer than it says": breaking_off(reply(GOOD, length=3)),
    "length and chunks": breaking_off(reply(GOOD, "Transfer-Encoding: chunked")),
    "another coding": breaking_off(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"),
    "switching": breaking_off(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
    "interim for ever": breaking_off(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000),
    "endless head": breaking_off(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 400_000),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("size", [2, 100_000])
@in_scene(2)
async def test_a_call_that_was_sent_and_not_answered_is_never_sent_again(
    scene: Scene, size: int, fault: str
) -> None:
    all_play(scene, BROKEN[fault])
    client = await scene.connect()
    answer = await client.ask(request(bytes(size)))
    assert (answer.status, answer.code) == (502, "outcome_unknown")
    assert sum(tried(scene)) == 1
    all_play(scene, answers_good)
    assert (await client.ask(request())).status == 200


SHORT: dict[str, bytes] = {
    "short": reply(GOOD, length=99),
    "short and long": reply(bytes(70_000), length=3 * MIB),
    "chunks that stop": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(GOOD),
    "chunks that go wrong": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunk(GOOD)
    + b"zz\r\n",
}


@pytest.mark.parametrize("fault", SHORT)
@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@in_scene(2)
async def test_an_answer_that_breaks_off_never_looks_whole(
    scene: Scene, fault: str, resets: bool
) -> None:
    all_play(scene, breaking_off(SHORT[fault], resets=resets))
    client = await scene.connect()
    await client.send(request())
    received = await client.rest()
    if received.startswith(b"HTTP/1.1 200 "):
        head, _, body = received.partition(b"\r\n\r\n")
        assert not body.endswith(b"0\r\n\r\n")
        if b"Content-Length: " in head:
            assert len(body) < int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
    else:  # a reset may overtake what was sent before it
        assert received == b"" or b"outcome_unknown" in received
    assert sum(tried(scene)) == 1


@in_scene()
async def test_interim_answers_of_a_replica_are_read_over(scene: Scene) -> None:
    one = b"HTTP/1.1 100 Continue\r\n\r\n"
    data, step = b"", 1

    async def in_pieces(call: Received) -> None:
        await call.read()
        for start in range(0, len(data), step):
            call.write(data[start : start + step])
            await asyncio.sleep(0)

    scene.a.script = in_pieces
    for interim in (one, one + b"HTTP/1.1 103 Early\r\nX: 1\r\n\r\n"):
        data = interim + reply()
        for step in (1, 7, 1000):
            client = await scene.connect()
            for _ in range(2):
                assert (await client.ask(request())).body == GOOD, (interim, step)


@in_scene()
async def test_answers_without_a_body_pass_as_such(scene: Scene) -> None:
    client = await scene.connect()
    for status in (204, 304):
        scene.a.script = answering(b"HTTP/1.1 %d X\r\nX-A: 1\r\n\r\n" % status)
        for _ in range(2):
            answer = await client.ask(request())
            assert (answer.status, answer.header("x-a")) == (status, "1")


@pytest.mark.parametrize("status", [404, 500, 503])
@in_scene(2)
async def test_an_endless_error_is_not_collected(scene: Scene, status: int) -> None:
    async def script(call: Received) -> None:
        await call.read()
        call.write(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
        while True:
            call.write(chunk(bytes(10_000)))
            await call.drain()

    all_play(scene, script)
    client = await scene.connect()
    await client.send(request())
    assert (await client.head()).status == status
    client.reset()


@in_scene()
async def test_what_broke_is_said_with_the_replicas_name(scene: Scene) -> None:
    scene.a.script = breaking_off(resets=True)
    error = json.loads((await scene.ask(request())).body)["error"]
    assert error.startswith("the connection to replica a broke during the call")
