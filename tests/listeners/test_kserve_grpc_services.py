"""Further services on the gRPC port: methods that code of the gateway answers, in frames."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    LOOPS,
    RST_STREAM,
    Received,
    Scene,
    frame,
    message,
    play,
    reset,
    settings,
    window,
)

from serve.core.calls import Reply, Verb
from serve.core.errors import NotFound
from serve.listeners.grpc.services import Asked, Service, Streaming, Unary

ONE = snapshot(view(target(1, "a")))
UNARY, STREAM = "/test.Service/Unary", "/test.Service/Stream"


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def upside_down(asked: Asked) -> Reply:
    return Reply(0, asked.message[::-1], ((b"x-more", b"1"),))


async def echo(asked: Asked, messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for one in messages:
        yield one


def asked(
    loop: str,
    *frames: bytes,
    method: str = UNARY,
    metadata: tuple[tuple[str, str], ...] = (),
    services: Mapping[str, Service],
) -> Received:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, method, metadata=metadata)
        client.send(*frames)
        [received] = await scene.over(client, 1)
        return received

    return play(scenario, loop, ONE, services=services)


def last(body: bytes, *, flag: int = 0) -> bytes:
    return frame(DATA, END_STREAM, 1, message(body, flag=flag))


SERVICES: Mapping[str, Service] = {UNARY: Unary(upside_down), STREAM: Streaming(echo)}


def test_a_service_answers_with_a_message_and_trailers(loop: str) -> None:
    received = asked(loop, last(b"abc"), services=SERVICES)
    assert received.messages == [b"cba"]
    assert received.trailers == {"grpc-status": "0", "x-more": "1"}
    assert received.request_id


def test_a_message_comes_whole_however_it_was_cut_and_packed(loop: str) -> None:
    packed = message(gzip.compress(b"abc" * 100_000), flag=1)
    frames = [frame(DATA, 0, 1, packed[at : at + 7]) for at in range(0, len(packed), 7)]
    received = asked(
        loop,
        *frames,
        frame(DATA, END_STREAM, 1),
        metadata=(("grpc-encoding", "gzip"),),
        services={UNARY: Unary(_length)},
    )
    assert received.messages == [b"300000"]


async def _length(asked: Asked) -> Reply:
    return Reply(0, b"%d" % len(asked.message))


def test_a_service_is_told_who_asks_and_what_else_was_said(loop: str) -> None:
    told: list[Asked] = []

    async def listen(asked: Asked) -> Reply:
        told.append(asked)
        return Reply(0, b"")

    key = "Bearer sg_abcd_0123456789abcdef"
    asked(
        loop,
        last(b""),
        metadata=(("x-request-id", "mine"), ("authorization", key), ("x-b", "2")),
        services={UNARY: Unary(listen)},
    )
    [one] = told
    assert (one.method, one.message, one.request_id) == (UNARY, b"", "mine")
    assert one.metadata == ((b"x-request-id", b"mine"), (b"x-b", b"2"))
    assert one.credential == key.encode()
    call = one.call(Verb.INDEX)
    assert (call.credential, call.origin, call.deadline) == (key.encode(), one.origin, one.deadline)
    assert key not in repr(one)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (NotFound("nothing of that name"), 5, "nothing of that name"),
        (KeyError("x"), 13, "the gateway could not answer: its log says more"),
    ],
)
def test_what_goes_wrong_in_a_service_is_told_as_a_status(
    loop: str, error: Exception, status: int, said: str
) -> None:
    async def fail(asked: Asked) -> Reply:
        raise error

    async def fail_later(
        asked: Asked, messages: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        yield b"first"
        raise error

    services: Mapping[str, Service] = {UNARY: Unary(fail), STREAM: Streaming(fail_later)}
    unary = asked(loop, last(b""), services=services)
    stream = asked(loop, last(b""), method=STREAM, services=services)
    assert (unary.status, unary.trailers["grpc-message"]) == (status, said)
    assert (stream.messages, stream.status) == ([b"first"], status)


@pytest.mark.parametrize(
    ("frames", "status"),
    [
        ([frame(DATA, END_STREAM, 1)], 12),
        ([frame(DATA, END_STREAM, 1, message(b"a") + message(b"b"))], 12),
        ([frame(DATA, END_STREAM, 1, message(b"abc")[:-1])], 3),
        ([frame(DATA, END_STREAM, 1, message(b"abc", flag=1))], 3),
        ([frame(DATA, 0, 1, message(b"")[:1] + b"\x7f\xff\xff\xff")], 8),
    ],
)
def test_what_is_no_single_message_is_refused(loop: str, frames: list[bytes], status: int) -> None:
    assert asked(loop, *frames, services=SERVICES).status == status


def test_a_method_of_triton_may_be_answered_by_a_service(loop: str) -> None:
    method = "/inference.GRPCInferenceService/RepositoryIndex"
    received = asked(loop, last(b"ab"), method=method, services={method: Unary(upside_down)})
    assert received.messages == [b"ba"]


def test_a_stream_is_answered_while_it_is_asked(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, STREAM)
        for count in range(1, 4):
            client.send(frame(DATA, 0, 1, message(b"%d" % count)))
            await until(lambda count=count: len(client.streams[1].messages) == count)  # type: ignore[misc]
        client.send(frame(DATA, END_STREAM, 1))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE, services=SERVICES)
    assert received.messages == [b"1", b"2", b"3"]
    assert received.trailers == {"grpc-status": "0"}


def test_a_stream_that_says_nothing_ends_well(loop: str) -> None:
    received = asked(loop, frame(DATA, END_STREAM, 1), method=STREAM, services=SERVICES)
    assert (received.status, len(received.heads)) == (0, 1)


def test_a_client_that_does_not_read_stops_the_stream_and_its_own_messages(loop: str) -> None:
    taken = 0

    async def count(asked: Asked, messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        nonlocal taken
        async for one in messages:
            taken += 1
            yield one

    async def scenario(scene: Scene) -> tuple[int, Received]:
        client = await scene.client()
        client.send(settings(frame=1 << 18))
        client.open(1, STREAM)
        for _ in range(10):
            client.send(frame(DATA, 0, 1, message(bytes(100_000 - 5))))
        await until(client.ping())
        await until(lambda: len(client.streams[1].body) == 65_535)
        stopped = taken
        client.send(window(1, 1 << 24), window(0, 1 << 24), frame(DATA, END_STREAM, 1))
        [received] = await scene.over(client, 1)
        return stopped, received

    stopped, received = play(scenario, loop, ONE, services={STREAM: Streaming(count)})
    assert stopped <= 2
    assert [len(one) for one in received.messages] == [99_995] * 10


def test_a_call_whose_client_leaves_is_cancelled(loop: str) -> None:
    cancelled: list[str] = []
    begun = asyncio.Event()

    async def wait(asked: Asked) -> Reply:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(asked.method)
        return Reply(0, b"")

    async def wait_for_ever(
        asked: Asked, messages: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        yield b""
        await wait(asked)

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for number, method in ((1, UNARY), (3, STREAM)):
            begun.clear()
            client.call(number, b"", method)
            await begun.wait()
            client.send(reset(number))
            await until(lambda method=method: method in cancelled)  # type: ignore[misc]

    play(scenario, loop, ONE, services={UNARY: Unary(wait), STREAM: Streaming(wait_for_ever)})
    assert cancelled == [UNARY, STREAM]


@pytest.mark.parametrize("method", [UNARY, STREAM])
def test_a_call_whose_time_is_over_is_answered_so(loop: str, method: str) -> None:
    async def wait(asked: Asked) -> Reply:
        return await asyncio.get_running_loop().create_future()

    async def listen(asked: Asked, messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for one in messages:
            yield one

    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, method, metadata=[("grpc-timeout", "5S")])
        client.send(frame(DATA, END_STREAM * (method == UNARY), 1, message(b"")))
        await until(client.ping())
        scene.sweep(4.0)
        assert not client.streams[1].is_over
        scene.sweep(2.0)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE, services={UNARY: Unary(wait), STREAM: Streaming(listen)})
    assert received.status == 4


def test_a_handler_may_end_a_stream_before_its_client_does(loop: str) -> None:
    async def first(asked: Asked, messages: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for one in messages:
            yield one
            return

    async def scenario(scene: Scene) -> tuple[Received, int]:
        client = await scene.client()
        client.open(1, STREAM)
        client.send(frame(DATA, 0, 1, message(b"1") + message(b"2")))
        await until(lambda: client.streams[1].ended)
        await until(lambda: bool(client.of(RST_STREAM, 1)))
        return client.streams[1], client.of(RST_STREAM, 1)[0].number

    received, code = play(scenario, loop, ONE, services={STREAM: Streaming(first)})
    assert (received.messages, received.status, code) == ([b"1"], 0, 0)
