"""API keys over gRPC: who may call what, and that no Triton ever sees a key."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import hpack
from builders import snapshot, target, view
from google.protobuf.message import Message
from grpc_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INFER,
    STREAM,
    answer,
    frame,
    infer,
    message,
)
from listeners.grpc_scene import Scene, in_scene, said
from tritonclient.grpc import service_pb2

from serve.core.access import ApiKey, Role
from serve.wire.kserve_grpc import SERVICE

OPEN = snapshot(view(target(1, "a")), view(target(1, "a", model="secret"), name="secret"))
KEY, WORDS = ApiKey.create(Role.PREDICTOR, ("m",))
GUARDED = replace(OPEN, keys=MappingProxyType({KEY.id: KEY}), guarded=True)
BEARER = ("authorization", f"Bearer {WORDS}")
BASIC = ("authorization", "Basic bWU6eW91")
NEEDED = (
    "a valid API key is required. Try: send the header 'authorization: Bearer sg_%E2%80%A6'",
    "unauthenticated",
)


@in_scene(GUARDED)
async def test_a_call_with_a_key_passes_and_the_key_stays_behind(scene: Scene) -> None:
    received = await scene.ask(infer(), INFER, [BEARER, ("x-else", "1")])
    assert received.messages == [answer()]
    [sent] = scene.triton.calls
    assert "authorization" not in sent.heads[0]
    assert sent.heads[0]["x-else"] == "1"
    for method, status in (("ServerLive", 0), ("ServerReady", 0), ("ServerMetadata", 16)):
        assert (await scene.ask(b"", SERVICE + method)).status == status
        assert (await scene.ask(b"", SERVICE + method, [BEARER])).status == 0


@in_scene(OPEN)
async def test_where_no_key_is_needed_only_other_credentials_go_on_to_triton(scene: Scene) -> None:
    lower = ("authorization", f"bearer {WORDS}")
    for metadata in ([BEARER], [lower], [BASIC], [BEARER, BASIC], [BASIC, BEARER]):
        received = await scene.ask(infer(), INFER, metadata)
        assert received.status == 0, metadata
        fields = scene.triton.calls[-1].fields[0]
        passed = [value.decode() for name, value in fields if name == b"authorization"]
        assert passed == [value for _, value in metadata if WORDS not in value]


@in_scene(GUARDED)
async def test_without_a_valid_key_nothing_reaches_triton(scene: Scene) -> None:
    for metadata in ([], [BASIC], [("authorization", f"Bearer {WORDS}x")]):
        received = await scene.ask(infer(), INFER, metadata)
        assert received.status == 16, metadata
        trailers = received.trailers
        assert (trailers["grpc-message"], trailers["servegate-error"]) == NEEDED
    assert scene.triton.calls == []


QUESTIONS: dict[str, type[Message]] = {
    "ModelMetadata": service_pb2.ModelMetadataRequest,
    "ModelConfig": service_pb2.ModelConfigRequest,
    "ModelStatistics": service_pb2.ModelStatisticsRequest,
    "ModelReady": service_pb2.ModelReadyRequest,
}


@in_scene(GUARDED)
async def test_a_model_that_a_key_may_not_see_is_like_one_that_is_not_there(scene: Scene) -> None:
    async def heard(method: str, model: str) -> object:
        kind = QUESTIONS.get(method)
        body = kind(name=model).SerializeToString() if kind else infer(model)
        received = await scene.ask(body, SERVICE + method, [BEARER])
        said = received.trailers.get("grpc-message", "").replace(model, "X")
        return received.trailers | {"grpc-message": said}, received.messages

    for method in ("ModelInfer", *QUESTIONS):
        assert await heard(method, "secret") == await heard(method, "absent"), method
    assert scene.triton.calls == []


async def errors(scene: Scene, metadata: Sequence[tuple[str, str]], *models: str) -> list[str]:
    """The errors in the answers of a stream that calls these models."""
    scene.triton.says = lambda request: said("")
    frames = [frame(DATA, 0, 1, message(infer(model))) for model in models]
    received = await scene.sent(
        *frames, frame(DATA, END_STREAM, 1), method=STREAM, metadata=metadata
    )
    assert received.status == 0
    answers = map(service_pb2.ModelStreamInferResponse.FromString, received.messages)
    return sorted(one.error_message for one in answers)


@in_scene(GUARDED)
async def test_each_message_of_a_stream_needs_a_key_for_its_model(scene: Scene) -> None:
    unknown = "Request for unknown model: 'secret' is not found"
    assert await errors(scene, [BEARER], "m", "secret") == ["", unknown]
    [refused] = await errors(scene, (), "m")
    assert refused.startswith("a valid API key is required")
    assert all("authorization" not in call.heads[0] for call in scene.triton.calls)


@in_scene(GUARDED)
async def test_a_key_that_a_proxy_has_compressed_is_found_too(scene: Scene) -> None:
    """A header block whose strings are Huffman-coded, as nghttp2 writes it."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": INFER,
        ":authority": "x",
        "content-type": "application/grpc",
        "authorization": BEARER[1],
        "x-request-id": "from-the-proxy",
    }
    client, encoder = await scene.client(), hpack.Encoder()
    for number in (1, 3):
        block = encoder.encode(list(fields.items()), huffman=True)
        client.send(frame(HEADERS, END_HEADERS, number, block))
        client.send(frame(DATA, END_STREAM, number, message(infer())))
        await scene.over(client, number)
        encoder.header_table_size = 0
    received = client.streams[3]
    assert (received.status, received.request_id) == (0, "from-the-proxy")
    for sent in scene.triton.calls:
        assert "authorization" not in sent.heads[0]
        assert sent.heads[0]["x-request-id"] == "from-the-proxy"
