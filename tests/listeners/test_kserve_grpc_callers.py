"""Who calls over gRPC: request ids, what the access log says, and API keys."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import hpack
from builders import snapshot, target, until, view
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
from listeners.grpc_scene import ONE, Scene, in_scene, said, send
from tritonclient.grpc import service_pb2

from serve.core.access import ApiKey, Role
from serve.wire.kserve_grpc import SERVICE

TWO_MODELS = snapshot(view(target(1, "a")), view(target(1, "a", model="n"), name="n"))
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# --- request ids ---------------------------------------------------------------------------------


@in_scene(ONE, is_logged=True)
async def test_a_request_id_that_does_not_fit_into_a_log_is_replaced(scene: Scene) -> None:
    good = ("a", "x" * 128, "9d1b7e5c-6c0b-4b62", "with spaces, and such")
    for given in (*good, "", "x" * 129, "größe", "tab\there", "\x7f"):
        received = await scene.ask(infer(), INFER, [("x-request-id", given)])
        assert received.request_id == scene.log.lines[-1].account.request_id
        assert (received.request_id == given) == (given in good), given
        assert received.request_id.isascii()


@in_scene(ONE, is_logged=True)
async def test_refusals_have_the_request_id_too_and_took_no_time_at_triton(scene: Scene) -> None:
    for body, *more in (
        (infer("absent"),),
        (b"\xff",),
        (infer(), ("grpc-timeout", "5X")),
        (infer(), ("content-type", "text/plain")),
    ):
        received = await scene.ask(body, INFER, [("x-request-id", "mine"), *more])
        assert received.request_id == "mine", body
    line = scene.log.lines[0]
    assert (line.model, line.replica, line.code) == ("absent", "", "unknown_model")
    assert (line.account.upstream, line.account.answered) == (0, 0)
    assert line.account.received == len(message(infer("absent")))


@in_scene(ONE)
async def test_fresh_request_ids_push_no_other_head_out_of_the_memory(scene: Scene) -> None:
    client = await scene.client()
    for number in range(1, 200, 2):
        fresh = f"{number:08}"
        metadata = [("x-request-id", fresh), ("traceparent", TRACE[:-8] + fresh)]
        received = await scene.call(client, number, infer(), INFER, metadata)
        head = scene.triton.calls[-1].heads[0]
        assert received.request_id == head["x-request-id"] == fresh
        assert head["traceparent"] == TRACE[:-8] + fresh
    assert scene.listener.known_heads <= 1
    made = {(await scene.call(client, number)).request_id for number in range(201, 207, 2)}
    made.add((await scene.ask()).request_id)
    assert len(made) == 4  # without one each call gets its own


# --- accounts ------------------------------------------------------------------------------------


@in_scene(ONE, is_logged=True)
async def test_a_line_says_what_came_went_and_took_time(scene: Scene) -> None:
    whole = message(infer(size=50_000))
    scene.silence()
    client = await scene.client()
    scene.plane.clock.now += 1
    client.open(1, metadata=[("traceparent", TRACE)])
    send(client, whole, ends=False)
    await until(client.ping())
    scene.plane.clock.now += 10
    client.send(frame(DATA, END_STREAM, 1))
    await until(lambda: [call.ended for call in scene.triton.calls] == [True])
    scene.plane.clock.now += 2.5
    scene.triton.head(1)
    scene.triton.data(1, message(answer())[:10])
    await until(lambda: len(client.streams[1].body) == 10)
    scene.plane.clock.now += 5
    scene.triton.data(1, message(answer())[10:])
    scene.triton.end(1)
    [received] = await scene.over(client, 1)
    [line] = scene.log.lines
    account = line.account
    assert (line.model, line.replica, line.code) == ("m", "a", "OK")
    assert (account.received, account.answered) == (len(whole), len(received.body))
    assert (account.traceparent, account.upstream) == (TRACE, 2.5)
    assert account.peer.startswith("127.0.0.1:")


@in_scene(ONE, is_logged=True)
async def test_an_answer_that_comes_as_a_whole_is_accounted_for_too(scene: Scene) -> None:
    client = await scene.client()
    for number in (1, 3):  # the second one takes the short way
        await scene.call(client, number)
    scene.silence()
    client.call(5)
    await until(lambda: [call.ended for call in scene.triton.calls] == [True] * 3)
    scene.plane.clock.now += 3
    scene.triton.answer(5)
    [received] = await scene.over(client, 5)
    accounts = [line.account for line in scene.log.lines]
    assert [one.answered for one in accounts] == [len(received.body)] * 3
    assert [one.upstream for one in accounts] == [0, 0, 3]


@in_scene(TWO_MODELS, is_logged=True)
async def test_a_stream_has_one_line_in_the_log_for_each_model(scene: Scene) -> None:
    response = service_pb2.ModelStreamInferResponse()
    response.infer_response.model_name = "m"
    said = response.SerializeToString()
    scene.triton.says = lambda request: said
    client = await scene.client()
    client.open(1, STREAM, metadata=[("x-request-id", "mine")])
    for model in ("m", "n", "m", "absent", "m"):
        client.send(frame(DATA, 0, 1, message(infer(model))))
    client.send(frame(DATA, END_STREAM, 1))
    await scene.over(client, 1)
    lines, size = scene.log.lines, len(infer())
    assert sorted((one.model, one.code, one.account.received) for one in lines) == [
        ("absent", "unknown_model", len(infer("absent"))),
        ("m", "OK", 3 * size),
        ("n", "OK", size),
    ]
    answered = [one.account.answered for one in lines if one.code == "OK"]
    assert answered == [len(message(said))] * 2
    assert {one.account.request_id for one in lines} == {"mine"}


@in_scene(TWO_MODELS, is_logged=True)
async def test_models_of_a_stream_that_ends_badly_end_with_it(scene: Scene) -> None:
    scene.silence()
    client = await scene.client()
    client.open(1, STREAM)
    for model in ("m", "n"):
        client.send(frame(DATA, 0, 1, message(infer(model))))
    await until(lambda: len(scene.triton.messages) == 2)
    scene.triton.refuse(1, 13, "broken")
    [received] = await scene.over(client, 1)
    scene.triton.refuse(3, 0, "")
    assert received.status == 13
    codes = [(one.model, one.code) for one in scene.log.lines]
    assert codes == [("m", "INTERNAL"), ("n", "INTERNAL")]


# --- API keys: who may call what, and no Triton ever sees a key -----------------------------------

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
