"""KEDA's questions over real gRPC, asked with stubs of the published definition."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest
from admin.keda.boards import board, told
from admin.keda.stubs import BOUND, PUBLISHED, SERVICE, ScaledObject, definition
from builders import Clock
from google.protobuf import descriptor_pb2

from serve.admin.keda.scaler import ExternalScaler
from serve.admin.keda.service import KedaService, descriptors, reflection
from serve.capacity.scaling.signals import Code
from serve.control.scaling.board import HintBoard
from serve.core.errors import Unauthenticated
from serve.wire import protobuf
from serve.wire.reflection import METHODS as REFLECTION

T = TypeVar("T")
Channel = grpc.aio.Channel
Scenario = Callable[[Channel], Awaitable[T]]
QUESTIONS = ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics", "StreamMetricSpec"]
OF_HINTS = ["IsActive", "StreamIsActive", "GetMetrics"]
IDLE = told("default", 0, Code.IDLE, ready=0)


def anybody(credential: bytes) -> None:
    """Nobody needs a key."""


@asynccontextmanager
async def serving(
    board: HintBoard, admit: Callable[[bytes], None] = anybody
) -> AsyncIterator[tuple[ExternalScaler, Channel]]:
    """The scaler of a server on a port of this machine, and a channel to it."""
    scaler = ExternalScaler(board, wall=Clock(1000.0))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(KedaService(scaler, admit=admit).handlers())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        address = f"127.0.0.1:{port}"
        async with asyncio.timeout(BOUND), grpc.aio.insecure_channel(address) as channel:
            yield scaler, channel
    finally:
        scaler.close()
        await server.stop(1.0)


def play(shown: HintBoard, scenario: Scenario[T], *, admit: Callable[[bytes], None] = anybody) -> T:
    async def act() -> T:
        async with serving(shown, admit) as (_, channel):
            return await scenario(channel)

    return asyncio.run(act())


async def status(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a call ends that is to fail before it says anything."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        if hasattr(call, "read"):
            assert await call.read() is None
        await call
    return failed.value.code(), failed.value.details() or ""


def test_the_service_is_the_published_one() -> None:
    (served,) = descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file
    assert served == definition(PUBLISHED.read_text())


def test_a_pool_is_active_while_it_is_to_have_replicas() -> None:
    for desired, is_active in ((0, False), (1, True), (12, True)):

        async def scenario(channel: Channel) -> Any:
            others = {"scalerAddress": "servegate:8090", "enableTLS": "true"}
            scaled = ScaledObject(channel, pool="default", **others)
            return await scaled.is_active(), await scaled.metrics("m"), await scaled.metrics()

        answers = play(board(told("t4", 2), told(desired=desired)), scenario)
        unnamed = ("servegate-desired-replicas", desired, float(desired))
        assert answers == (is_active, [("m", desired, float(desired))], [unnamed])


def test_the_target_is_one_for_each_replica_of_whatever_pool() -> None:
    async def scenario(channel: Channel) -> Any:
        scaled = ScaledObject(channel, pool="not-there-yet")
        return await scaled.specs(), (await scaled.open("StreamMetricSpec").read()).metricSpecs

    specs, (streamed,) = play(HintBoard(), scenario)
    assert specs == [("servegate-desired-replicas", 1, 1.0)]
    assert (streamed.metricName, streamed.targetSizeFloat) == ("servegate-desired-replicas", 1.0)


async def refusals(channel: Channel, *methods: str, **metadata: str) -> Any:
    """The codes and the words with which these questions are refused."""
    asked = [ScaledObject(channel, **metadata).open(method) for method in methods]
    ends = [await status(call) for call in asked]
    return {code for code, _ in ends}, " ".join(words for _, words in ends)


def test_a_question_about_no_pool_or_an_unknown_one_is_told_what_to_change() -> None:
    async def scenario(channel: Channel) -> None:
        codes, words = await refusals(channel, *QUESTIONS, scalerAddress="servegate:8090")
        assert codes == {grpc.StatusCode.INVALID_ARGUMENT}
        assert words.count("pool: default") == len(QUESTIONS)
        codes, words = await refusals(channel, *OF_HINTS, pool="default")
        assert codes == {grpc.StatusCode.NOT_FOUND}
        assert words.count("a100, t4") == len(OF_HINTS)
        call = ScaledObject(channel, pool="x").open("IsActive")
        await status(call)
        assert dict(await call.trailing_metadata())["servegate-error"] == "not_found"

    play(board(told("a100"), told("t4")), scenario)


def test_what_cannot_be_followed_is_an_error_that_lets_keda_keep_everything() -> None:
    shown = board(told("default", 2, Code.STALE))
    codes, _ = play(shown, lambda one: refusals(one, "IsActive", "GetMetrics", pool="default"))
    assert codes == {grpc.StatusCode.UNAVAILABLE}


def test_a_call_that_wakes_a_pool_is_told_in_every_open_stream_of_it_and_no_other() -> None:
    shown = board(IDLE, told("t4", 0, Code.IDLE, ready=0))

    async def scenario(channel: Channel) -> tuple[list[bool], bool]:
        streams = [
            ScaledObject(channel, pool=pool).open("StreamIsActive")
            for pool in ("default", "default", "t4")
        ]
        hearing = [asyncio.create_task(stream.read()) for stream in streams]
        await streams[0].initial_metadata()
        assert not await ScaledObject(channel, pool="default").is_active()
        assert not hearing[0].done()
        shown.put([told("default", 1, Code.WAKING, ready=0), told("t4", 0, Code.IDLE, ready=0)])
        heard = [(await one).result for one in hearing[:2]]
        return heard, hearing[2].done()

    assert play(shown, scenario) == ([True, True], False)


@pytest.mark.parametrize("method", ["StreamIsActive", "StreamMetricSpec"])
def test_a_stream_stays_open_and_ends_well_when_the_service_closes(method: str) -> None:
    async def act() -> grpc.StatusCode:
        async with serving(board(told())) as (scaler, channel):
            scaled = ScaledObject(channel, pool="default")
            stream = scaled.open(method)
            assert await stream.read()
            ending = asyncio.create_task(stream.read())
            for _ in range(3):
                await scaled.is_active()
            assert not ending.done()
            scaler.close()
            assert await ending is grpc.aio.EOF
            code: grpc.StatusCode = await stream.code()
            return code

    assert asyncio.run(act()) is grpc.StatusCode.OK


def keyed(credential: bytes) -> None:
    if credential != b"Bearer sg_right":
        raise Unauthenticated()


def test_without_the_key_nothing_is_told() -> None:
    async def scenario(channel: Channel) -> set[grpc.StatusCode]:
        shown = [
            ScaledObject(channel, pool="default"),
            ScaledObject(channel, pool="default", key="sg_wrong"),
            ScaledObject(channel, "Bearer sg_wrong", pool="default"),
            ScaledObject(channel, "Bearer sg_wrong", pool="default", key="sg_right"),
            ScaledObject(channel),
        ]
        return {(await status(one.open(method)))[0] for one in shown for method in QUESTIONS}

    assert play(board(told()), scenario, admit=keyed) == {grpc.StatusCode.UNAUTHENTICATED}


def test_a_key_stands_in_the_triggers_metadata_or_is_shown_as_other_clients_do() -> None:
    async def scenario(channel: Channel) -> None:
        for scaled in (
            ScaledObject(channel, pool="default", key="sg_right"),
            ScaledObject(channel, pool="default", keyFromEnv="sg_right"),
            ScaledObject(channel, "Bearer sg_right", pool="default"),
        ):
            assert await scaled.metrics("m") == [("m", 3, 3.0)]

    play(board(told(desired=3)), scenario, admit=keyed)


def test_what_nobody_foresaw_is_said_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    def broken(credential: bytes) -> None:
        raise KeyError("a detail")

    async def scenario(channel: Channel) -> tuple[grpc.StatusCode, str]:
        return await status(ScaledObject(channel, pool="default").open("IsActive"))

    code, words = play(board(told()), scenario, admit=broken)
    assert code is grpc.StatusCode.INTERNAL
    assert "detail" not in words
    assert "a detail" in caplog.text


def test_reflection_of_both_versions_tells_the_definition_to_anybody() -> None:
    assert len(reflection()) == len(REFLECTION)

    async def scenario(channel: Channel) -> None:
        for path in REFLECTION:
            asked = iter([protobuf.field(4, SERVICE.encode())])
            answer = await channel.stream_stream(path)(asked, timeout=BOUND).read()
            files = dict(protobuf.fields(dict(protobuf.fields(answer))[4]))
            found = descriptor_pb2.FileDescriptorProto.FromString(files[1])
            assert found == definition(PUBLISHED.read_text())
        nonsense = channel.stream_stream(REFLECTION[0])(iter([b"\xff"]), timeout=BOUND)
        assert (await status(nonsense))[0] is grpc.StatusCode.INTERNAL

    play(HintBoard(), scenario, admit=keyed)
