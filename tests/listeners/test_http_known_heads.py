"""Heads that are known, or follow a pattern, are not parsed: nobody can tell by the answers."""

import re

import pytest
from listeners.http_clients import Client
from listeners.http_messages import CHUNKED, SMUGGLED, chunked, request
from listeners.http_messages import HEAD as POST
from listeners.http_replicas import echoes
from listeners.http_scene import Scene, in_scene


async def teach(client: Client, body: bytes = b"{}") -> None:
    """A head is known when it has come twice."""
    for _ in range(3):
        assert (await client.ask(request(body))).status == 200


@in_scene()
async def test_a_head_that_came_twice_is_known_and_means_the_same(scene: Scene) -> None:
    client = await scene.connect()
    await teach(client)
    assert list(scene.listener.heads) == [request(b"{}")[:-2]]
    assert (await client.ask(request(b"[]"))).status == 200
    other = await scene.connect()
    assert (await other.ask(request(b"42"))).status == 200
    assert scene.a.bodies == [b"{}", b"{}", b"{}", b"[]", b"42"]
    assert len({call.head for call in scene.a.requests}) == 1


@in_scene()
async def test_a_head_that_says_something_unusual_is_never_known(scene: Scene) -> None:
    last = (request(b"{}", "Connection: close"), request(b"{}", version="1.0"))
    for data in (
        *last,
        request(b"", method="GET", path="/v2/health/live"),
        request(b"{}", "Expect: 100-continue"),
        request(b"{}", "Content-Encoding: gzip"),
        chunked(b"{}"),
        request(b"{}", "X-A: " + "x" * 5000),
    ):
        for _ in range(2):
            client = await scene.connect()
            for _ in range(1 if data in last else 3):
                assert (await client.ask(data)).status == 200, data
        assert scene.listener.heads == {}, data


@in_scene(loops=("uvloop",))
async def test_a_known_head_may_be_cut_anywhere(scene: Scene) -> None:
    client = await scene.connect()
    await teach(client)
    for cut in range(1, len(request())):
        body = b"%02d" % (cut % 100)
        await client.send(request(body)[:cut])
        await scene.until_read()
        assert (await client.ask(request(body)[cut:])).status == 200, cut
        assert scene.a.bodies[-1] == body, cut


@in_scene()
async def test_a_body_is_never_a_known_request(scene: Scene) -> None:
    client = await scene.connect()
    await teach(client)
    trick = request(b"{}")
    await client.send(POST + b"Content-Length: %d\r\n\r\n" % len(trick))
    await scene.until_read()
    assert (await client.ask(trick)).status == 200
    await client.send(CHUNKED + b"%x\r\n" % len(trick))
    await scene.until_read()
    assert (await client.ask(trick + b"\r\n0\r\n\r\n")).status == 200
    # the application answers before its body has come; what is left of the body is read over
    head = b"POST /v2/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (2 * len(trick))
    assert (await client.ask(head)).status == 404
    for _ in range(2):
        await client.send(trick)
        await scene.until_read()
    assert (await client.ask(request(b"[]"))).status == 200
    assert scene.a.bodies[3:] == [trick, trick, b"[]"]


@in_scene()
async def test_lines_between_requests_hide_nothing(scene: Scene) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    for lines in (b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n", b"\n"):
        for _ in range(3):
            assert (await client.ask(lines + request(b"[]"))).body == b"[]"
        await client.send(lines)
        await scene.until_read()
        assert (await client.ask(request(b"{}"))).body == b"{}"


@in_scene()
async def test_known_requests_in_one_read_are_as_many_as_were_sent(scene: Scene) -> None:
    scene.a.script = echoes
    client = await scene.connect()
    await teach(client)
    await client.send(request(b"12") + request(b"34") + request(b"56")[:-1])
    assert [(await client.answer()).body for _ in range(2)] == [b"12", b"34"]
    assert (await client.ask(b"6" + request(b"78"))).body == b"56"
    assert (await client.answer()).body == b"78"


@in_scene()
async def test_a_known_head_is_routed_anew_and_not_served_behind_a_refused_one(
    scene: Scene,
) -> None:
    client, other = await scene.connect(), await scene.connect()
    await teach(client)
    await client.send(b"nonsense\r\n\r\n")
    await client.send(request(b"{}"))
    assert (await client.rest()).count(b"HTTP/1.1 400 ") == 1
    assert len(scene.a.requests) == 3
    assert (await other.ask(request())).status == 200
    scene.plane.live.swap(type(scene.plane.live.snapshot)(99))
    assert (await other.ask(request())).status == 404


def nameless(answer: bytes) -> bytes:
    """An answer without its request id, which no other answer has."""
    line, found = re.subn(rb"servegate-request-id: [!-~]+\r\n", b"", answer)
    assert found == 1
    return line


def traced(trace: str, body: bytes = b"{}", *more: str) -> bytes:
    return request(body, "Accept: */*", f"Traceparent: {trace}", "X-Percent: 50%", *more)


@in_scene()
async def test_heads_in_which_a_trace_varies_follow_a_pattern(scene: Scene) -> None:
    client = await scene.connect()
    sent = [f"00-{number:032}-01" for number in range(8)]
    for trace in sent:
        assert (await client.ask(traced(trace))).status == 200
    [pattern] = scene.listener._patterns.values()
    assert repr(pattern) == "<Pattern m varying=['traceparent']>"
    assert scene.listener.heads == {}
    assert [call.header("traceparent") for call in scene.a.requests] == sent
    heads = [call.head for call in scene.a.requests]
    assert len({head.replace(sent[n].encode(), b"") for n, head in enumerate(heads)}) == 1
    assert {call.header("x-percent") for call in scene.a.requests} == {"50%"}


@pytest.mark.parametrize(
    "trick",
    [
        traced("1\r\nContent-Length: 0"),
        traced("1\r\nTransfer-Encoding: chunked"),
        traced("1\nContent-Length: 0"),
        traced("1\rX: 0"),
        traced("1\r\n\r\n" + SMUGGLED.decode() * 3),
        traced("\x00"),
        traced("1 \x0b"),
    ],
)
@in_scene()
async def test_a_pattern_has_no_hole_for_anything_but_a_value(scene: Scene, trick: bytes) -> None:
    fresh = await scene.connect()
    await fresh.send(trick)
    untaught = nameless(await fresh.rest()) if b" 400 " in await fresh.reader.readline() else None
    count = len(scene.a.requests)
    client = await scene.connect()
    for number in range(5):
        assert (await client.ask(traced(str(number) * 60))).status == 200
    await client.send(trick)
    line = await client.reader.readline()
    assert (b" 400 " in line) is (untaught is not None)
    if untaught is not None:
        assert nameless(await client.rest()) == untaught
        assert len(scene.a.requests) == count + 5


@in_scene()
async def test_a_head_with_a_pattern_may_be_cut_anywhere(scene: Scene) -> None:
    scene.a.script = echoes
    data = traced("7", b"[]")
    for cut in (1, 30, 100, 160, -2, -1):
        client = await scene.connect()
        for number in range(5):
            await client.ask(traced(f"{number}"))
        await client.send(data[:cut])
        await scene.until_read()
        assert (await client.ask(data[cut:])).body == b"[]", cut
        await client.send(traced("8", b"12") + traced("9", b"34"))
        assert [(await client.answer()).body for _ in range(2)] == [b"12", b"34"], cut
        traces = [call.header("traceparent") for call in scene.a.requests[-3:]]
        assert traces == ["7", "8", "9"], cut
