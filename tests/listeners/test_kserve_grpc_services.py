"""Services on the gRPC port that code of the gateway answers, health and reflection among them."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from functools import partial

import pytest
from builders import DataPlane, until
from grpc_wire import (
    DATA,
    END_STREAM,
    RST_STREAM,
    frame,
    message,
    reset,
    settings,
    window,
)
from listeners.grpc_scene import ONE, Scene, in_scene, send, stage
from loops import on_loops

from serve.core.calls import Account, Reply, Verb
from serve.core.errors import NotFound
from serve.listeners.grpc.health import CHECK, health
from serve.listeners.grpc.reflection import ReflectionService
from serve.listeners.grpc.services import Service, ServiceRequest, Streaming, Unary
from serve.wire.reflection import METHODS

UNARY, STREAM = "/test.Service/Unary", "/test.Service/Stream"
Messages = AsyncIterator[bytes]
Answers = AsyncGenerator[bytes, None]


async def upside_down(asked: ServiceRequest) -> Reply:
    return Reply(0, asked.message[::-1], ((b"x-more", b"1"),))


async def echo(asked: ServiceRequest, messages: Messages) -> Answers:
    async for one in messages:
        yield one


INDEX = "/inference.GRPCInferenceService/RepositoryIndex"
SERVICES: Mapping[str, Service] = {
    UNARY: Unary(upside_down),
    INDEX: Unary(upside_down),
    STREAM: Streaming(echo),
}


@in_scene(ONE, services=SERVICES)
async def test_a_service_answers_with_a_message_and_trailers(scene: Scene) -> None:
    for method in (UNARY, INDEX):  # which is one of Triton's
        received = await scene.ask(b"abc", method)
        assert received.messages == [b"cba"]
        assert received.trailers == {"grpc-status": "0", "x-more": "1"}
        assert received.request_id


@in_scene(ONE, services=SERVICES)
async def test_a_message_comes_whole_however_it_was_cut_and_packed(scene: Scene) -> None:
    client = await scene.client()
    client.open(1, UNARY, metadata=[("grpc-encoding", "gzip")])
    send(client, message(gzip.compress(b"abc" * 100_000), flag=1), ends=False, cut=7)
    client.send(frame(DATA, END_STREAM, 1), settings(window=1 << 24), window(0, 1 << 24))
    [received] = await scene.over(client, 1)
    assert received.messages == [b"cba" * 100_000]


@on_loops()
async def test_a_service_gets_the_credential_and_the_metadata_of_a_call() -> None:
    calls: list[ServiceRequest] = []

    async def listen(asked: ServiceRequest) -> Reply:
        calls.append(asked)
        return Reply(0, b"")

    key = "Bearer sg_abcd_0123456789abcdef"
    metadata = (("x-request-id", "mine"), ("authorization", key), ("x-b", "2"))
    async with stage(ONE, services={UNARY: Unary(listen)}) as scene:
        await scene.ask(b"", UNARY, metadata)
    [one] = calls
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
        (KeyError("x"), 13, "the gateway failed: see its log"),
    ],
)
@on_loops()
async def test_an_error_of_a_service_becomes_a_status(
    error: Exception, status: int, said: str
) -> None:
    async def fail(asked: ServiceRequest) -> Reply:
        raise error

    async def fail_later(asked: ServiceRequest, messages: Messages) -> Answers:
        yield b"first"
        raise error

    services: Mapping[str, Service] = {UNARY: Unary(fail), STREAM: Streaming(fail_later)}
    async with stage(ONE, services=services) as scene:
        unary, stream = await scene.ask(b"", UNARY), await scene.ask(b"", STREAM)
    assert (unary.status, unary.trailers["grpc-message"]) == (status, said)
    assert (stream.messages, stream.status) == ([b"first"], status)


@in_scene(ONE, services=SERVICES)
async def test_what_is_no_single_message_is_refused(scene: Scene) -> None:
    for case, flags, data, status in (
        ("none", END_STREAM, b"", 12),
        ("two", END_STREAM, message(b"a") + message(b"b"), 12),
        ("cut off", END_STREAM, message(b"abc")[:-1], 3),
        ("compressed, without an encoding", END_STREAM, message(b"abc", flag=1), 3),
        ("too large", 0, b"\0\x7f\xff\xff\xff", 8),
    ):
        received = await scene.sent(frame(DATA, flags, 1, data), method=UNARY)
        assert received.status == status, case


@in_scene(ONE, services=SERVICES)
async def test_a_stream_is_answered_while_its_messages_come(scene: Scene) -> None:
    client = await scene.client()
    client.open(1, STREAM)
    for count in range(1, 4):
        client.send(frame(DATA, 0, 1, message(b"%d" % count)))
        await until(lambda count=count: len(client.streams[1].messages) == count)  # type: ignore[misc]
    client.send(frame(DATA, END_STREAM, 1))
    [received] = await scene.over(client, 1)
    assert received.messages == [b"1", b"2", b"3"]
    assert received.trailers == {"grpc-status": "0"}
    empty = await scene.sent(frame(DATA, END_STREAM, 1), method=STREAM)
    assert (empty.status, len(empty.heads)) == (0, 1)


@on_loops()
async def test_a_client_that_does_not_read_stops_the_stream_and_its_own_messages() -> None:
    taken = 0

    async def count(asked: ServiceRequest, messages: Messages) -> Answers:
        nonlocal taken
        async for one in messages:
            taken += 1
            yield one

    async with stage(ONE, services={STREAM: Streaming(count)}) as scene:
        client = await scene.client()
        client.send(settings(frame=1 << 18))
        client.open(1, STREAM)
        for _ in range(10):
            client.send(frame(DATA, 0, 1, message(bytes(100_000 - 5))))
        await until(client.ping())
        await until(lambda: len(client.streams[1].body) == 65_535)
        assert taken <= 2
        client.send(window(1, 1 << 24), window(0, 1 << 24), frame(DATA, END_STREAM, 1))
        [received] = await scene.over(client, 1)
        assert [len(one) for one in received.messages] == [99_995] * 10


@on_loops()
async def test_a_call_whose_client_leaves_is_cancelled() -> None:
    cancelled: list[str] = []
    begun = asyncio.Event()

    async def wait(asked: ServiceRequest) -> Reply:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(asked.method)
        return Reply(0, b"")

    async def wait_for_ever(asked: ServiceRequest, messages: Messages) -> Answers:
        yield b""
        await wait(asked)

    services: Mapping[str, Service] = {UNARY: Unary(wait), STREAM: Streaming(wait_for_ever)}
    async with stage(ONE, services=services) as scene:
        client = await scene.client()
        for number, method in ((1, UNARY), (3, STREAM)):
            begun.clear()
            client.call(number, b"", method)
            await begun.wait()
            client.send(reset(number))
            await until(lambda method=method: method in cancelled)  # type: ignore[misc]
    assert cancelled == [UNARY, STREAM]


@on_loops()
async def test_a_call_whose_time_is_over_ends_with_the_status_of_a_deadline() -> None:
    async def wait(asked: ServiceRequest) -> Reply:
        return await asyncio.get_running_loop().create_future()

    services: Mapping[str, Service] = {UNARY: Unary(wait), STREAM: Streaming(echo)}
    async with stage(ONE, services=services) as scene:
        for method in (UNARY, STREAM):
            client = await scene.client()
            client.open(1, method, metadata=[("grpc-timeout", "5S")])
            client.send(frame(DATA, END_STREAM * (method == UNARY), 1, message(b"")))
            await until(client.ping())
            scene.sweep(4.0)
            assert not client.streams[1].is_over
            scene.sweep(2.0)
            [received] = await scene.over(client, 1)
            assert received.status == 4, method


@on_loops()
async def test_a_handler_may_end_a_stream_before_its_client_does() -> None:
    async def first(asked: ServiceRequest, messages: Messages) -> Answers:
        async for one in messages:
            yield one
            return

    async with stage(ONE, services={STREAM: Streaming(first)}) as scene:
        client = await scene.client()
        client.open(1, STREAM)
        client.send(frame(DATA, 0, 1, message(b"1") + message(b"2")))
        await until(lambda: client.streams[1].ended)
        await until(lambda: bool(client.of(RST_STREAM, 1)))
        received, [given] = client.streams[1], client.of(RST_STREAM, 1)
        assert (received.messages, received.status, given.number) == ([b"1"], 0, 0)


# --- health checks and reflection -----------------------------------------------------------------

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
REFLECTION = ReflectionService().services()


class NoOrigin:
    """Where no call comes from."""

    def account(self) -> Account:
        return Account()


@on_loops("uvloop")
async def test_the_gateway_serves_when_it_is_ready_and_does_not_stop() -> None:
    guarded = replace(ONE, guarded=True)  # health needs no key
    for now, is_draining, body in (
        (ONE, False, SERVING),
        (ONE, True, NOT_SERVING),
        (None, False, NOT_SERVING),
        (guarded, False, SERVING),
    ):
        service = health(DataPlane(now).gateway, partial(bool, is_draining))[CHECK]
        assert isinstance(service, Unary)
        asked = ServiceRequest(CHECK, b"\x0a\x01x", (), b"", 1e9, "7", NoOrigin())
        assert await service.answer(asked) == Reply(0, body), (now, is_draining)


@in_scene(ONE, services=REFLECTION)
async def test_reflection_answers_each_question_in_turn(scene: Scene) -> None:
    questions = frame(DATA, END_STREAM, 1, message(b"\x3a\x00") + message(b"\x22\x01x"))
    for method in METHODS:
        received = await scene.sent(questions, method=method)
        services, nothing = received.messages
        assert b"inference.GRPCInferenceService" in services
        assert b"'x' is unknown" in nothing
        assert received.status == 0
    unreadable = await scene.ask(b"\xff\xff", METHODS[0])
    assert (unreadable.status, unreadable.messages) == (13, [])
