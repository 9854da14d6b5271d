"""API keys over gRPC: who may call what, and that no Triton ever sees a key."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest
from builders import snapshot, target, view
from google.protobuf.message import Message
from grpc_wire import (
    DATA,
    END_STREAM,
    INFER,
    LOOPS,
    STREAM,
    Received,
    Scene,
    answer,
    frame,
    infer,
    message,
    play,
)
from tritonclient.grpc import service_pb2

from serve.core.access import Key, Role
from serve.core.snapshot import Snapshot

SERVICE = "/inference.GRPCInferenceService/"
OPEN = snapshot(view(target(1, "a")), view(target(1, "a", model="secret"), name="secret"))
KEY, WORDS = Key.create(Role.PREDICTOR, ("m",))
GUARDED = replace(OPEN, keys=MappingProxyType({KEY.id: KEY}), guarded=True)
BEARER = (("authorization", f"Bearer {WORDS}"),)
NEEDED = (
    "a valid API key is needed. Try: the header 'authorization: Bearer sg_%E2%80%A6'",
    "unauthenticated",
)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asked(
    loop: str,
    metadata: Sequence[tuple[str, str]],
    *,
    body: bytes | None = None,
    method: str = INFER,
    now: Snapshot = GUARDED,
) -> tuple[Received, list[Received]]:
    """What the client hears, and what reaches the Triton."""

    async def scenario(scene: Scene) -> tuple[Received, list[Received]]:
        client = await scene.client()
        client.call(1, infer() if body is None else body, method, metadata)
        [received] = await scene.over(client, 1)
        return received, scene.triton.calls

    return play(scenario, loop, now)


def test_a_call_with_a_key_passes_and_the_key_stays_behind(loop: str) -> None:
    received, [sent] = asked(loop, (*BEARER, ("x-else", "1")))
    assert received.messages == [answer()]
    assert "authorization" not in sent.heads[0]
    assert sent.heads[0]["x-else"] == "1"


@pytest.mark.parametrize("word", ["Bearer", "bearer", "BEARER "])
def test_a_key_stays_behind_when_none_is_needed_too(loop: str, word: str) -> None:
    received, [sent] = asked(loop, (("authorization", f"{word} {WORDS}"),), now=OPEN)
    assert received.status == 0
    assert "authorization" not in sent.heads[0]


@pytest.mark.parametrize(
    "metadata",
    [
        (("authorization", "Basic bWU6eW91"),),
        (("authorization", "Bearer sgx"),),
        (*BEARER, ("authorization", "Basic bWU6eW91")),
        (("authorization", "Basic bWU6eW91"), *BEARER),
    ],
)
def test_what_is_no_key_of_ours_goes_on_to_triton(
    loop: str, metadata: Sequence[tuple[str, str]]
) -> None:
    _, [sent] = asked(loop, metadata, now=OPEN)
    passed = [value.decode() for name, value in sent.fields[0] if name == b"authorization"]
    assert passed == [value for _, value in metadata if WORDS not in value]


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Basic bWU6eW91"),),
        (("authorization", f"Bearer {WORDS[:-1]}"),),
        (("authorization", f"Bearer {WORDS}x"),),
        (("authorization", WORDS),),
        (("authorization", ""),),
    ],
)
def test_without_a_valid_key_nothing_reaches_triton(
    loop: str, metadata: Sequence[tuple[str, str]]
) -> None:
    received, sent = asked(loop, metadata)
    assert (received.status, sent) == (16, [])
    assert (received.trailers["grpc-message"], received.trailers["servegate-error"]) == NEEDED


QUESTIONS: list[tuple[str, Message]] = [
    ("ModelInfer", service_pb2.ModelInferRequest(model_name="{}")),
    ("ModelMetadata", service_pb2.ModelMetadataRequest(name="{}")),
    ("ModelConfig", service_pb2.ModelConfigRequest(name="{}")),
    ("ModelStatistics", service_pb2.ModelStatisticsRequest(name="{}")),
    ("ModelReady", service_pb2.ModelReadyRequest(name="{}")),
]


@pytest.mark.parametrize(("method", "request_"), QUESTIONS)
def test_a_model_that_a_key_may_not_see_is_one_that_nobody_knows(
    loop: str, method: str, request_: Message
) -> None:
    heard = []
    for model in ("secret", "absent"):
        body = request_.SerializeToString().replace(
            b"\x02{}", bytes((len(model),)) + model.encode()
        )
        received, sent = asked(loop, BEARER, body=body, method=SERVICE + method)
        assert not sent
        said = received.trailers.get("grpc-message", "").replace(model, "X")
        heard.append((received.trailers | {"grpc-message": said}, received.messages))
    assert heard[0] == heard[1]


@pytest.mark.parametrize(
    ("method", "status"), [("ServerLive", 0), ("ServerReady", 0), ("ServerMetadata", 16)]
)
def test_health_needs_no_key_and_the_rest_does(loop: str, method: str, status: int) -> None:
    received, _ = asked(loop, (), body=b"", method=SERVICE + method)
    assert received.status == status
    received, _ = asked(loop, BEARER, body=b"", method=SERVICE + method)
    assert received.status == 0


def stream(loop: str, metadata: Sequence[tuple[str, str]], *models: str) -> list[str]:
    """The errors of a stream that asks these models."""

    async def scenario(scene: Scene) -> list[bytes]:
        inner = service_pb2.ModelInferResponse(model_name="m")
        scene.triton.says = lambda request: service_pb2.ModelStreamInferResponse(
            infer_response=inner
        ).SerializeToString()
        client = await scene.client()
        client.open(1, STREAM, metadata=metadata)
        client.send(*(frame(DATA, 0, 1, message(infer(model))) for model in models))
        client.send(frame(DATA, END_STREAM, 1))
        [received] = await scene.over(client, 1)
        assert received.status == 0
        assert all("authorization" not in call.heads[0] for call in scene.triton.calls)
        return received.messages

    said = play(scenario, loop, GUARDED)
    return sorted(
        service_pb2.ModelStreamInferResponse.FromString(one).error_message for one in said
    )


def test_each_message_of_a_stream_needs_a_key_for_the_model_that_it_names(loop: str) -> None:
    unknown = "Request for unknown model: 'secret' is not found"
    assert stream(loop, BEARER, "m", "secret") == ["", unknown]
    [refused] = stream(loop, (), "m")
    assert refused.startswith("a valid API key is needed")


def test_a_key_that_a_proxy_has_compressed_is_found_too(loop: str) -> None:
    """A header block whose strings are Huffman-coded, as nghttp2 writes it."""
    import hpack

    async def scenario(scene: Scene) -> tuple[Received, list[Received]]:
        client = await scene.client()
        encoder = hpack.Encoder()
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": INFER,
            ":authority": "x",
            "content-type": "application/grpc",
            "authorization": BEARER[0][1],
            "x-request-id": "from-the-proxy",
        }
        for number in (1, 3):
            block = encoder.encode(list(fields.items()), huffman=True)
            client.send(frame(1, 4, number, block))
            client.send(frame(DATA, END_STREAM, number, message(infer())))
            await scene.over(client, number)
            encoder.header_table_size = 0
        return client.streams[3], scene.triton.calls

    received, sent = play(scenario, loop, GUARDED)
    assert (received.status, received.request_id) == (0, "from-the-proxy")
    assert all("authorization" not in call.heads[0] for call in sent)
    assert all(call.heads[0]["x-request-id"] == "from-the-proxy" for call in sent)
