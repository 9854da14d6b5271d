"""However a client's bytes are cut, they mean the same; and no bytes break the listener."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from listeners.http_messages import chunk, reply
from listeners.http_replicas import Received
from listeners.http_scene import Arrangement, Scene
from listeners.http_scene import scene as in_a_scene

PATHS = ["/v2/models/m/infer", "/v2/models/m/versions/1/infer?x", "http://y/v2/models/m/infer"]
HEADERS = [b"X-A: 1", b"x-b:2", b"X-C:  \t3 ", b"Traceparent: 00-aa-bb-01", b"Accept: */*"]


@dataclass(frozen=True)
class Sent:
    """A valid request, and the body that it means."""

    data: bytes
    body: bytes


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    path = draw(st.sampled_from(PATHS)).encode()
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=4))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=60), max_size=4))
    body = b"".join(pieces)
    lines = [b"POST %b HTTP/1.1" % path, b"Host: x", *headers]
    if draw(st.booleans()):
        lines += [b"Content-Length: %d" % len(body), b"", body]
    else:
        extension = draw(st.sampled_from([b"", b";a=b"]))
        chunks = [chunk(one).replace(b"\r\n", extension + b"\r\n", 1) for one in pieces]
        trailer = draw(st.sampled_from([b"", b"X-T: 1\r\n"]))
        lines += [b"Transfer-Encoding: chunked", b"", b"".join(chunks) + b"0\r\n" + trailer]
        lines[-1] += b"\r\n"
    before = draw(st.sampled_from([b"", b"\r\n"]))
    return Sent(before + b"\r\n".join(lines), body)


@dataclass
class Came:
    """What a replica got and what the client was answered."""

    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answers: list[tuple[int, bytes]] = field(default_factory=list)


async def exchange(data: list[bytes], count: int) -> Came:
    came = Came()

    async def script(call: Received) -> None:
        await call.read()
        call.write(reply(call.body[::-1]))

    async with (
        asyncio.timeout(10),
        in_a_scene(Arrangement()) as it,
    ):
        it.a.script = script
        client = await it.connect()
        for piece in data:
            client.writer.write(piece)
            await it.until_read()
        for _ in range(count):
            answer = await client.answer()
            came.answers.append((answer.status, answer.body))
        came.paths = [call.path for call in it.a.requests]
        came.bodies = it.a.bodies
    return came


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


@given(
    st.lists(requests(), min_size=1, max_size=4),
    st.lists(st.integers(0, 2000), max_size=6),
    st.booleans(),
)
@settings(max_examples=60)
def test_requests_mean_the_same_however_they_are_cut(
    sent: list[Sent], places: list[int], twice: bool
) -> None:
    if twice:  # so that heads become known
        sent = [one for one in sent for _ in range(3)]
    data = b"".join(one.data for one in sent)
    came = uvloop.run(exchange(cut(data, places), len(sent)))
    assert came.bodies == [one.body for one in sent]
    assert came.answers == [(200, one.body[::-1]) for one in sent]
    assert came.paths == ["/v2/models/m/versions/1/infer"] * len(sent)


PARTS = [
    b"POST /v2/models/m/infer HTTP/1.1\r\n", b"GET /v2/health/live HTTP/1.1\r\n", b"Host: x\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n",
    b"Connection: close\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"5\r\nabcde\r\n",
    b"0\r\n\r\n", b"Expect: 100-continue\r\n", b"hello", b"\x00", b"\n", b" ", b"HTTP/1.1",
    b"Content-Encoding: gzip\r\n", b"Inference-Header-Content-Length: 3\r\n", b"PRI * HTTP/2.0\r\n",
]  # fmt: skip


async def survives(pieces: list[bytes]) -> None:
    async def script(call: Received) -> None:
        await call.read()
        call.write(reply())

    async with (
        asyncio.timeout(10),
        in_a_scene(Arrangement()) as it,
    ):
        it.a.script = script
        await _survives(it, pieces)


async def _survives(it: Scene, pieces: list[bytes]) -> None:
    client = await it.connect()
    try:
        for piece in pieces:
            client.writer.write(piece)
            await it.until_read()
    except ConnectionError:
        pass  # it was refused already
    other = await it.connect()
    told = await other.ask(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert told.status == 200
    complete = [call for call in it.a.requests if call.is_complete]
    assert len(complete) <= b"".join(pieces).count(b"POST")


@given(
    st.lists(st.one_of(st.sampled_from(PARTS), st.binary(max_size=20)), max_size=25),
    st.lists(st.integers(0, 2000), max_size=4),
)
@settings(max_examples=100)
def test_no_bytes_break_the_listener_or_leave_anything_behind(
    parts: list[bytes], places: list[int]
) -> None:
    """The scene sees to it that nothing was raised and that everything is back at zero."""
    uvloop.run(survives(cut(b"".join(parts), places)))
