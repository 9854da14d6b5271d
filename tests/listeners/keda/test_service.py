"""KEDA's questions over real gRPC, asked with stubs of the published definition."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from listeners.keda.boards import board, told
from listeners.keda.serving import anybody, serving
from listeners.keda.stubs import BOUND, PUBLISHED, SERVICE, ScaledObject, definition

from serve.capacity.scaling.signals import Code
from serve.control.scaling.board import Board
from serve.core.errors import Unauthenticated
from serve.listeners.keda.messages import descriptors
from serve.listeners.keda.service import reflection
from serve.wire import protobuf
from serve.wire.reflection import METHODS as REFLECTION

T = TypeVar("T")
Scenario = Callable[[grpc.aio.Channel], Awaitable[T]]
QUESTIONS = ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics", "StreamMetricSpec"]
OF_HINTS = ["IsActive", "StreamIsActive", "GetMetrics"]
IDLE = told("default", 0, Code.IDLE, ready=0)


def play(
    shown: Board,
    scenario: Scenario[T],
    *,
    now: float = 1000.0,
    admit: Callable[[bytes], None] = anybody,
) -> T:
    async def act() -> T:
        async with asyncio.timeout(BOUND), serving(shown, now=now, admit=admit) as served:
            return await scenario(served.channel)

    return asyncio.run(act())


async def status(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a call ends that is to fail before it says anything."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        if hasattr(call, "read"):
            assert await call.read() is None
        await call
    return failed.value.code(), failed.value.details() or ""


def refusal(shown: Board, method: str, **metadata: str) -> tuple[grpc.StatusCode, str]:
    async def scenario(channel: grpc.aio.Channel) -> tuple[grpc.StatusCode, str]:
        return await status(ScaledObject(channel, **metadata).open(method))

    return play(shown, scenario)


def test_the_service_is_the_published_one() -> None:
    (served,) = descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file
    assert served == definition(PUBLISHED.read_text())


@pytest.mark.parametrize(("desired", "is_active"), [(0, False), (1, True), (12, True)])
def test_a_pool_is_active_while_it_is_to_have_replicas(desired: int, is_active: bool) -> None:
    async def scenario(channel: grpc.aio.Channel) -> Any:
        scaled = ScaledObject(channel, pool="default")
        return await scaled.is_active(), await scaled.metrics("m")

    answers = play(board(told(desired=desired)), scenario)
    assert answers == (is_active, [("m", desired, float(desired))])


def test_the_target_is_one_for_each_replica_of_whatever_pool() -> None:
    async def scenario(channel: grpc.aio.Channel) -> Any:
        scaled = ScaledObject(channel, pool="not-there-yet")
        return await scaled.specs(), (await scaled.open("StreamMetricSpec").read()).metricSpecs

    specs, (streamed,) = play(Board(), scenario)
    assert specs == [("servegate-desired-replicas", 1, 1.0)]
    assert (streamed.metricName, streamed.targetSizeFloat) == ("servegate-desired-replicas", 1.0)


def test_a_metric_without_a_name_gets_one() -> None:
    answers = play(board(told(desired=2)), lambda one: ScaledObject(one, pool="default").metrics())
    assert answers == [("servegate-desired-replicas", 2, 2.0)]


def test_what_else_stands_in_the_triggers_metadata_does_not_matter() -> None:
    metadata = {"scalerAddress": "servegate:8090", "enableTLS": "true", "pool": "t4"}
    shown = board(told("a100", 4), told("t4", 2))
    answers = play(shown, lambda one: ScaledObject(one, **metadata).metrics("m"))
    assert answers == [("m", 2, 2.0)]


@pytest.mark.parametrize("method", QUESTIONS)
def test_a_trigger_that_names_no_pool_is_told_what_to_add(method: str) -> None:
    code, words = refusal(board(told()), method, scalerAddress="servegate:8090")
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "pool: default" in words


@pytest.mark.parametrize("method", OF_HINTS)
def test_an_unknown_pool_is_not_found_and_those_that_are_known_are_named(method: str) -> None:
    code, words = refusal(board(told("a100"), told("t4")), method, pool="default")
    assert code is grpc.StatusCode.NOT_FOUND
    assert "a100, t4" in words


@pytest.mark.parametrize("method", ["IsActive", "GetMetrics"])
@pytest.mark.parametrize(
    "shown", [Board(), board(told(at=0.0)), board(told("default", 2, Code.STALE))]
)
def test_what_cannot_be_followed_is_an_error_that_lets_keda_keep_everything(
    method: str, shown: Board
) -> None:
    assert refusal(shown, method, pool="default")[0] is grpc.StatusCode.UNAVAILABLE


def test_a_call_that_wakes_a_pool_is_told_in_the_open_stream() -> None:
    shown = board(IDLE)

    async def scenario(channel: grpc.aio.Channel) -> list[bool]:
        scaled = ScaledObject(channel, pool="default")
        stream = scaled.open("StreamIsActive")
        await stream.initial_metadata()
        hearing = asyncio.create_task(stream.read())
        before = [await scaled.is_active(), hearing.done()]
        shown.put([told("default", 1, Code.WAKING, ready=0)])
        return [*before, (await hearing).result, await scaled.is_active()]

    assert play(shown, scenario) == [False, False, True, True]


def test_every_stream_of_a_pool_is_told_and_no_other() -> None:
    shown = board(IDLE, told("t4", 0, Code.IDLE, ready=0))

    async def scenario(channel: grpc.aio.Channel) -> tuple[list[bool], bool]:
        streams = [
            ScaledObject(channel, pool=pool).open("StreamIsActive")
            for pool in ("default", "default", "t4")
        ]
        hearing = [asyncio.create_task(stream.read()) for stream in streams]
        shown.put([told("default", 1, ready=0), told("t4", 0, Code.IDLE, ready=0)])
        heard = [(await one).result for one in hearing[:2]]
        return heard, hearing[2].done()

    assert play(shown, scenario) == ([True, True], False)


def test_the_stream_of_targets_stays_open_though_they_never_change() -> None:
    async def scenario(channel: grpc.aio.Channel) -> bool:
        scaled = ScaledObject(channel, pool="default")
        stream = scaled.open("StreamMetricSpec")
        assert await stream.read()
        ending = asyncio.create_task(stream.read())
        for _ in range(3):
            await scaled.is_active()
        return ending.done()

    assert not play(board(told()), scenario)


@pytest.mark.parametrize("method", ["StreamIsActive", "StreamMetricSpec"])
def test_a_stream_ends_well_when_the_service_closes(method: str) -> None:
    async def act() -> grpc.StatusCode:
        async with asyncio.timeout(BOUND), serving(board(told())) as served:
            stream = ScaledObject(served.channel, pool="default").open(method)
            assert await stream.read()
            served.scaler.close()
            assert await stream.read() is grpc.aio.EOF
            code: grpc.StatusCode = await stream.code()
            return code

    assert asyncio.run(act()) is grpc.StatusCode.OK


def keyed(credential: bytes) -> None:
    if credential != b"Bearer sg_right":
        raise Unauthenticated()


@pytest.mark.parametrize("method", QUESTIONS)
def test_without_the_key_nothing_is_told(method: str) -> None:
    async def scenario(channel: grpc.aio.Channel) -> list[tuple[grpc.StatusCode, str]]:
        shown = [
            ScaledObject(channel, pool="default"),
            ScaledObject(channel, pool="default", key="sg_wrong"),
            ScaledObject(channel, "Bearer sg_wrong", pool="default"),
            ScaledObject(channel, "Bearer sg_wrong", pool="default", key="sg_right"),
            ScaledObject(channel),
        ]
        return [await status(one.open(method)) for one in shown]

    codes = {code for code, _ in play(board(told()), scenario, admit=keyed)}
    assert codes == {grpc.StatusCode.UNAUTHENTICATED}


@pytest.mark.parametrize("name", ["key", "keyFromEnv"])
def test_a_key_may_stand_in_the_triggers_metadata_which_is_all_that_keda_sends(name: str) -> None:
    metadata = {"pool": "default", name: "sg_right"}
    answers = play(
        board(told(desired=3)), lambda one: ScaledObject(one, **metadata).metrics("m"), admit=keyed
    )
    assert answers == [("m", 3, 3.0)]


def test_a_key_may_be_shown_as_other_clients_show_it() -> None:
    answers = play(
        board(told(desired=3)),
        lambda one: ScaledObject(one, "Bearer sg_right", pool="default").metrics("m"),
        admit=keyed,
    )
    assert answers == [("m", 3, 3.0)]


def test_what_nobody_foresaw_is_said_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    def broken(credential: bytes) -> None:
        raise KeyError("a detail")

    async def scenario(channel: grpc.aio.Channel) -> tuple[grpc.StatusCode, str]:
        return await status(ScaledObject(channel, pool="default").open("IsActive"))

    code, words = play(board(told()), scenario, admit=broken)
    assert code is grpc.StatusCode.INTERNAL
    assert "detail" not in words
    assert "a detail" in caplog.text


def test_an_error_of_ours_says_which_in_the_trailing_metadata() -> None:
    async def scenario(channel: grpc.aio.Channel) -> str:
        call = ScaledObject(channel, pool="x").open("IsActive")
        await status(call)
        return dict(await call.trailing_metadata())["servegate-error"]

    assert play(board(told()), scenario) == "not_found"


@pytest.mark.parametrize("path", REFLECTION)
def test_reflection_tells_the_definition_to_anybody(path: str) -> None:
    async def scenario(channel: grpc.aio.Channel) -> bytes:
        call = channel.stream_stream(path)(
            iter([protobuf.field(4, SERVICE.encode())]), timeout=BOUND
        )
        answer: bytes = await call.read()
        return answer

    answer = play(Board(), scenario, admit=keyed)
    files = dict(protobuf.fields(dict(protobuf.fields(answer))[4]))
    assert descriptor_pb2.FileDescriptorProto.FromString(files[1]) == definition(
        PUBLISHED.read_text()
    )


def test_reflection_says_of_nonsense_that_it_is_none() -> None:
    async def scenario(channel: grpc.aio.Channel) -> grpc.StatusCode:
        call = channel.stream_stream(REFLECTION[0])(iter([b"\xff"]), timeout=BOUND)
        return (await status(call))[0]

    assert play(Board(), scenario) is grpc.StatusCode.INTERNAL


def test_there_is_reflection_of_both_versions() -> None:
    assert len(reflection()) == len(REFLECTION)
