"""The gRPC data listener on a real port, in front of a gateway with a fake transport."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest
from builders import DataPlane, Outcome, snapshot, target, until, view
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serve.core.calls import Reply, Verb
from serve.core.errors import NotSent
from serve.core.snapshot import Snapshot
from serve.listeners.kserve_grpc import OPTIONS, KServeGrpc

T = TypeVar("T")
ONE = snapshot(view(target(1, "a"), labels={"stable": 1}), generation=7)
REQUEST = service_pb2.ModelInferRequest(model_name="m", id="77", raw_input_contents=[b"tensor"])
RESPONSE = service_pb2.ModelInferResponse(model_name="m", model_version="1", id="77")
OK = Reply(0, RESPONSE.SerializeToString(), ((b"x-trailer", b"1"), (b"y-bin", b"\x00\xff")))
LIMIT = 1000  # bytes


@dataclass(slots=True)
class Scene:
    """A client of the listener, and the data plane behind it."""

    plane: DataPlane
    channel: grpc.aio.Channel
    stub: Any


@asynccontextmanager
async def serving(
    now: Snapshot | None, outcomes: Mapping[str, Outcome], draining: bool
) -> AsyncIterator[Scene]:
    plane = DataPlane(now, outcomes)
    handler = KServeGrpc(
        plane.gateway,
        max_body=LIMIT,
        timeout=30,
        clock=plane.clock,
        is_draining=lambda: draining,
    )
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Scene(plane, channel, service_pb2_grpc.GRPCInferenceServiceStub(channel))
    await server.stop(0)


def play(
    scenario: Callable[[Scene], Awaitable[T]],
    *,
    now: Snapshot | None = ONE,
    outcome: Outcome = OK,
    draining: bool = False,
) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(10), serving(now, {"a": outcome}, draining) as scene:
            return await scenario(scene)

    return asyncio.run(bounded())


@dataclass(frozen=True, slots=True)
class Answered:
    """A call's end: its status, message, trailers and message."""

    code: grpc.StatusCode
    details: str
    trailers: dict[str, Any]
    message: Any


async def ended(pending: Any) -> Answered:
    try:
        message = await pending
    except grpc.aio.AioRpcError:
        message = None
    trailers = dict(await pending.trailing_metadata())
    return Answered(await pending.code(), await pending.details(), trailers, message)


def infer(
    request: service_pb2.ModelInferRequest = REQUEST,
    *,
    now: Snapshot | None = ONE,
    outcome: Outcome = OK,
) -> Answered:
    return play(lambda scene: ended(scene.stub.ModelInfer(request)), now=now, outcome=outcome)


def test_an_answer_passes_unchanged_with_the_decision_in_its_trailers() -> None:
    answered = infer()
    assert answered.message == RESPONSE
    assert answered.trailers == {
        "x-trailer": "1",
        "y-bin": b"\x00\xff",
        "servegate-version": "1; by=latest; generation=7",
    }


def test_the_call_is_the_message_as_it_came() -> None:
    async def scenario(scene: Scene) -> DataPlane:
        metadata = (("authorization", "Bearer x"), ("trace-bin", b"\x00\xff"))
        request = service_pb2.ModelInferRequest(model_name="m", model_version="stable")
        await scene.stub.ModelInfer(request, metadata=metadata)
        return scene.plane

    plane = play(scenario)
    [made] = plane.grpc.calls
    assert (made.protocol, made.verb, made.model) == ("grpc", Verb.INFER, "m")
    assert made.selector == "stable"
    assert service_pb2.ModelInferRequest.FromString(made.body).model_version == "stable"
    assert made.headers == ((b"authorization", b"Bearer x"), (b"trace-bin", b"\x00\xff"))
    assert made.deadline == plane.clock.now + 30


def test_the_deadline_of_the_client_travels_with_the_call() -> None:
    async def scenario(scene: Scene) -> float:
        await scene.stub.ModelInfer(REQUEST, timeout=20)
        return (scene.plane.grpc.calls[0].deadline or 0) - scene.plane.clock.now

    assert 10 < play(scenario) < 21


def test_an_error_of_triton_keeps_its_status_and_message() -> None:
    answered = infer(outcome=Reply(3, b"", (), "unexpected shape for input 'x'"))
    assert answered.code is grpc.StatusCode.INVALID_ARGUMENT
    assert answered.details == "unexpected shape for input 'x'"
    assert "servegate-error" not in answered.trailers


@pytest.mark.parametrize(
    ("request_", "now", "outcome", "code", "error"),
    [
        ({"model_name": "x"}, ONE, OK, "NOT_FOUND", "unknown_model"),
        ({"model_name": "m", "model_version": "9"}, ONE, OK, "NOT_FOUND", "unknown_version"),
        ({"model_name": "m", "model_version": "9" * 900}, ONE, OK, "NOT_FOUND", "unknown_version"),
        ({"model_name": "m", "model_version": "x\n"}, ONE, OK, "NOT_FOUND", "unknown_label"),
        ({"model_name": "größe"}, ONE, OK, "NOT_FOUND", "unknown_model"),
        ({"model_name": "m", "id": "x" * LIMIT}, ONE, OK, "RESOURCE_EXHAUSTED", "body_too_large"),
        ({"model_name": "m"}, None, OK, "UNAVAILABLE", "no_snapshot"),
        ({"model_name": "m"}, ONE, NotSent("refused"), "UNAVAILABLE", "no_replica"),
    ],
)
def test_an_error_of_ours_says_that_it_is_ours(
    request_: dict[str, str], now: Snapshot | None, outcome: Outcome, code: str, error: str
) -> None:
    answered = infer(service_pb2.ModelInferRequest(**request_), now=now, outcome=outcome)
    assert (answered.code.name, answered.trailers.get("servegate-error")) == (code, error)


def test_bytes_that_are_no_message_are_refused() -> None:
    async def scenario(scene: Scene) -> Answered:
        method = scene.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        return await ended(method(b"\xff\xff\xff"))

    answered = play(scenario)
    assert answered.code is grpc.StatusCode.INVALID_ARGUMENT
    assert answered.trailers["servegate-error"] == "bad_request"


@pytest.mark.parametrize(
    ("now", "draining", "ready"),
    [(ONE, False, True), (ONE, True, False), (None, False, False)],
    ids=["serving", "draining", "no snapshot"],
)
def test_the_server_is_live_and_ready_as_long_as_it_serves(
    now: Snapshot | None, draining: bool, ready: bool
) -> None:
    async def scenario(scene: Scene) -> tuple[bool, bool]:
        live = await scene.stub.ServerLive(service_pb2.ServerLiveRequest())
        answer = await scene.stub.ServerReady(service_pb2.ServerReadyRequest())
        return live.live, answer.ready

    assert play(scenario, now=now, draining=draining) == (True, ready)


def test_a_model_that_nobody_knows_is_not_ready_which_is_no_error() -> None:
    async def scenario(scene: Scene) -> Answered:
        return await ended(scene.stub.ModelReady(service_pb2.ModelReadyRequest(name="nope")))

    answered = play(scenario)
    assert answered.code is grpc.StatusCode.OK
    assert not answered.message.ready


def test_questions_go_the_same_way_as_calls() -> None:
    async def scenario(scene: Scene) -> list[tuple[Verb, str, str]]:
        await scene.stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="m", version="1"))
        await scene.stub.ServerMetadata(service_pb2.ServerMetadataRequest())
        return [(made.verb, made.model, made.selector) for made in scene.plane.grpc.calls]

    assert play(scenario, outcome=Reply(0, b"")) == [
        (Verb.METADATA, "m", "1"),
        (Verb.SERVER_METADATA, "", ""),
    ]


@pytest.mark.parametrize(("sequences", "key"), [(True, "s77"), (False, "")])
def test_correlation_ids_are_read_only_for_models_with_sequences(sequences: bool, key: str) -> None:
    async def scenario(scene: Scene) -> str:
        request = service_pb2.ModelInferRequest(model_name="m")
        request.parameters["sequence_id"].string_param = "77"
        await scene.stub.ModelInfer(request)
        return scene.plane.grpc.calls[0].sequence

    assert play(scenario, now=snapshot(view(target(1, "a"), sequences=sequences))) == key


def test_a_client_that_leaves_cancels_nothing_and_its_place_is_free_when_triton_answers() -> None:
    answered = asyncio.Event()

    async def scenario(scene: Scene) -> list[int]:
        pending = scene.stub.ModelInfer(REQUEST)
        await until(scene.plane.grpc.entered.is_set)
        pending.cancel()
        await scene.stub.ServerLive(service_pb2.ServerLiveRequest())  # it has seen the client go
        busy = [scene.plane.loads.total]
        answered.set()
        await until(lambda: scene.plane.loads.total == 0)
        return [*busy, scene.plane.loads.total]

    assert play(scenario, outcome=answered) == [1, 0]


def test_the_rest_of_tritons_service_is_said_not_to_be_served() -> None:
    async def scenario(scene: Scene) -> Answered:
        return await ended(scene.stub.RepositoryIndex(service_pb2.RepositoryIndexRequest()))

    answered = play(scenario)
    assert answered.code is grpc.StatusCode.UNIMPLEMENTED
    assert answered.trailers["servegate-error"] == "not_served"
