"""The gRPC listener, in frames: a call goes through as it is, and nothing is left of it."""

import gzip
import zlib

import pytest
from builders import snapshot, target, until, view
from google.protobuf.message import Message
from grpc_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    INFER,
    LOOPS,
    STREAM,
    WINDOW_UPDATE,
    Received,
    Scene,
    answer,
    block,
    frame,
    infer,
    message,
    play,
    settings,
    window,
)
from tritonclient.grpc import service_pb2

from serve.core.snapshot import Snapshot

ONE = snapshot(view(target(1, "a"), labels={"stable": 1}), generation=7)
TWO = snapshot(view(target(1, "a", "b")), generation=7)
DECISION = "1; by=latest; generation=7"


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def named(sent: bytes) -> tuple[str, str]:
    request = service_pb2.ModelInferRequest.FromString(sent)
    return request.model_name, request.model_version


def test_a_call_passes_with_its_version_and_the_answer_with_the_decision(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, Received]:
        client = await scene.client()
        return await scene.call(client, 1), scene.triton.calls[0]

    received, sent = play(scenario, loop, ONE)
    assert received.messages == [answer()]
    assert received.heads[0] == dict(HEAD)
    assert received.trailers == {"grpc-status": "0", "servegate-version": DECISION}
    [request] = sent.messages
    assert named(request) == ("m", "1")
    whole = service_pb2.ModelInferRequest.FromString(request)
    whole.model_version = ""
    assert whole == service_pb2.ModelInferRequest.FromString(infer())
    assert sent.heads[0][":path"] == INFER
    assert sent.ended


@pytest.mark.parametrize("size", [0, 1, 4_000, 16_384, 70_000, 300_000, 3_000_000])
@pytest.mark.parametrize("cut", [1 << 14, 1 << 18, 1000])
def test_messages_of_any_size_pass_both_ways(loop: str, size: int, cut: int) -> None:
    body = infer(size=size)

    async def scenario(scene: Scene) -> tuple[Received, Received]:
        scene.triton.greeting = settings(window=1 << 24) + window(0, 1 << 24)
        scene.triton.says = lambda request: answer(size=size)
        client = await scene.client()
        client.send(settings(window=1 << 24) + window(0, 1 << 24))
        client.open(1)
        whole = message(body)
        credit = 1 << 20
        for at in range(0, len(whole), cut):
            while at + cut > credit:
                await until(lambda: bool(client.of(WINDOW_UPDATE, 1)))
                credit += sum(one.number for one in client.of(WINDOW_UPDATE, 1))
                client.frames.clear()
            piece = whole[at : at + cut]
            client.send(frame(DATA, END_STREAM * (at + cut >= len(whole)), 1, piece))
        [received] = await scene.over(client, 1)
        return received, scene.triton.calls[0]

    received, sent = play(scenario, loop, ONE)
    assert received.messages == [answer(size=size)]
    [request] = sent.messages
    assert request.startswith(body)
    assert named(request) == ("m", "1")


# --- what comes back -----------------------------------------------------------------------------


def test_fields_that_nobody_reads_pass_both_ways_in_their_order(loop: str) -> None:
    metadata = (("x-twice", "1"), ("trace-bin", "AP8"), ("x-twice", "2"), ("user-agent", "me"))
    metadata += (("servegate-version", "9"), ("x-forwarded-for", "10.0.0.1"))

    async def scenario(scene: Scene) -> tuple[Received, Received]:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1, metadata=metadata)
        await until(lambda: bool(scene.triton.calls) and scene.triton.calls[0].ended)
        scene.triton.head(1, ("x-head", "1"), ("x-head", "2"))
        scene.triton.data(1, message(answer()))
        scene.triton.end(1, 0, ("y-bin", "AP8"), ("x-trailer", "1"), ("x-trailer", "2"))
        [received] = await scene.over(client, 1)
        return received, scene.triton.calls[0]

    received, sent = play(scenario, loop, ONE)
    assert [f for f in sent.fields[0] if f[0] in (b"x-twice", b"trace-bin")] == [
        (b"x-twice", b"1"),
        (b"trace-bin", b"AP8"),
        (b"x-twice", b"2"),
    ]
    stays = {b"user-agent", b"servegate-version", b"x-forwarded-for"}
    assert not stays & dict(sent.fields[0]).keys()
    assert received.fields[0][2:] == [(b"x-head", b"1"), (b"x-head", b"2")]
    assert received.fields[1] == [
        (b"grpc-status", b"0"),
        (b"y-bin", b"AP8"),
        (b"x-trailer", b"1"),
        (b"x-trailer", b"2"),
        (b"servegate-version", DECISION.encode()),
        (b"servegate-request-id", received.request_id.encode()),
    ]


def test_a_status_of_triton_passes_with_its_message(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        await until(lambda: bool(scene.triton.calls) and scene.triton.calls[0].ended)
        scene.triton.refuse(1, 3, "gr%C3%B6%C3%9Fe")
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert received.heads == [
        {
            **dict(HEAD),
            "grpc-status": "3",
            "grpc-message": "gr%C3%B6%C3%9Fe",
            "servegate-version": DECISION,
            "servegate-request-id": received.request_id,
        }
    ]


@pytest.mark.parametrize(
    ("body", "status", "error", "said"),
    [
        (infer("x"), 5, "unknown_model", "Request for unknown model: 'x' is not found"),
        (
            infer("gr\u00f6"),
            5,
            "unknown_model",
            "Request for unknown model: 'gr%C3%B6' is not found",
        ),
        (infer("m", "9"), 5, "unknown_version", "Request for unknown model: 'm' version 9"),
        (infer("m", "x"), 5, "unknown_label", "Request for unknown model: 'm' label 'x'"),
        (b"\xff\xff\xff", 13, "unparsable", "Unable to parse request"),
        (b"", 5, "unknown_model", "Request for unknown model: '' is not found"),
        (infer(size=5000), 8, "body_too_large", "the request body exceeds 4000 bytes"),
    ],
)
def test_an_error_of_ours_says_that_it_is_ours(
    loop: str, body: bytes, status: int, error: str, said: str
) -> None:
    async def scenario(scene: Scene) -> Received:
        return await scene.call(await scene.client(), 1, body)

    received = play(scenario, loop, ONE, body=4000)
    assert (received.status, received.trailers["servegate-error"]) == (status, error)
    assert received.trailers["grpc-message"].startswith(said)
    assert len(received.heads) == 1


@pytest.mark.parametrize(
    ("bodies", "status"),
    [
        ([b""], 12),
        ([message(infer())[:-1]], 3),
        ([message(infer())[:3]], 3),
        ([message(infer()), message(infer())], 12),
        ([message(infer()) * 2], 12),
        ([message(infer(), flag=2)], 3),
        ([message(infer(), flag=1)], 3),
    ],
    ids=["none", "cut off", "prefix cut off", "two", "two at once", "flag", "no encoding"],
)
def test_a_unary_call_has_exactly_one_message(loop: str, bodies: list[bytes], status: int) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1)
        for body in bodies:
            client.send(frame(DATA, END_STREAM * (body is bodies[-1]), 1, body))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert received.status == status


def test_a_message_may_come_byte_by_byte_and_its_end_by_itself(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1)
        for byte in message(infer()):
            client.send(frame(DATA, 0, 1, bytes((byte,))))
        client.send(frame(DATA, END_STREAM, 1))
        [received] = await scene.over(client, 1)
        assert named(scene.triton.calls[0].messages[0]) == ("m", "1")
        return received

    assert play(scenario, loop, ONE, pings=10_000).status == 0


def test_trailers_of_a_client_end_its_message(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1)
        client.send(frame(DATA, 0, 1, message(infer())))
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(("x-checksum", "1"))))
        [received] = await scene.over(client, 1)
        return received

    assert play(scenario, loop, ONE).status == 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_message_is_inflated_to_be_routed(loop: str, encoding: str) -> None:
    packed = gzip.compress(infer()) if encoding == "gzip" else zlib.compress(infer())

    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, metadata=[("grpc-encoding", encoding)])
        client.send(frame(DATA, END_STREAM, 1, message(packed, flag=1)))
        await scene.over(client, 1)
        return scene.triton.calls[0]

    sent = play(scenario, loop, ONE)
    assert named(sent.messages[0]) == ("m", "1")
    assert "grpc-encoding" not in sent.heads[0]


def test_what_inflates_beyond_the_limit_is_refused(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, metadata=[("grpc-encoding", "gzip")])
        bomb = gzip.compress(infer(size=2_000_000))
        client.send(frame(DATA, END_STREAM, 1, message(bomb, flag=1)))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE, inflated=1_000_000)
    assert (received.status, received.trailers["servegate-error"]) == (8, "inflated_too_large")


@pytest.mark.parametrize(
    ("fields", "status", "http"),
    [
        ((("grpc-timeout", "5X"),), 3, "200"),
        ((("grpc-encoding", "br"),), 12, "200"),
        ((("x-many", "1"),) * 300, 8, "200"),
    ],
)
def test_heads_that_grpc_does_not_know_are_refused(
    loop: str, fields: tuple[tuple[str, str], ...], status: int, http: str
) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, metadata=fields, flags=END_HEADERS | END_STREAM)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE, head=8000)
    assert (received.status, received.heads[0][":status"]) == (status, http)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "text/plain"}, "415"),
        ({"content-type": "application/grpc-web"}, "415"),
    ],
)
def test_what_is_no_grpc_gets_an_answer_of_http(
    loop: str, changed: dict[str, str], status: str
) -> None:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": INFER,
        ":authority": "x",
        "content-type": "application/grpc",
    }

    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        head = block(*(fields | changed).items())
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, head))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert received.heads == [{":status": status, "servegate-request-id": received.request_id}]


# --- other questions -----------------------------------------------------------------------------


def question(name: str, request: Message, loop: str, now: Snapshot = ONE) -> Received:
    async def scenario(scene: Scene) -> Received:
        scene.triton.says = lambda sent: sent
        client = await scene.client()
        client.call(1, request.SerializeToString(), f"/inference.GRPCInferenceService/{name}")
        [received] = await scene.over(client, 1)
        return received

    return play(scenario, loop, now)


@pytest.mark.parametrize("name", ["ServerLive", "ServerReady"])
def test_the_gateway_answers_for_itself_whether_it_lives(loop: str, name: str) -> None:
    received = question(name, service_pb2.ServerLiveRequest(), loop)
    assert received.messages == [b"\x08\x01"]
    assert received.trailers == {"grpc-status": "0"}


@pytest.mark.parametrize(
    ("name", "request_", "passed"),
    [
        ("ModelMetadata", service_pb2.ModelMetadataRequest(name="m"), ("m", "")),
        ("ModelMetadata", service_pb2.ModelMetadataRequest(name="m", version="stable"), ("m", "1")),
        ("ModelConfig", service_pb2.ModelConfigRequest(name="m"), ("m", "")),
        ("ModelStatistics", service_pb2.ModelStatisticsRequest(name="m"), ("m", "")),
        ("ModelReady", service_pb2.ModelReadyRequest(name="m"), ("m", "1")),
    ],
)
def test_questions_about_a_model_go_to_triton(
    loop: str, name: str, request_: Message, passed: tuple[str, str]
) -> None:
    [said] = question(name, request_, loop).messages
    sent = type(request_).FromString(said)
    assert (sent.name, sent.version) == passed  # type: ignore[attr-defined]


def test_a_question_about_the_server_passes_as_it_is(loop: str) -> None:
    received = question("ServerMetadata", service_pb2.ServerMetadataRequest(), loop)
    assert (received.messages, received.status) == ([b""], 0)


def test_a_model_that_nobody_knows_is_not_ready_which_is_no_error(loop: str) -> None:
    received = question("ModelReady", service_pb2.ModelReadyRequest(name="x"), loop)
    assert (received.messages, received.status) == ([b""], 0)
    assert received.trailers["servegate-error"] == "unknown_model"


@pytest.mark.parametrize(
    ("name", "error"), [("RepositoryModelLoad", "not_served"), ("Nothing", "not_here")]
)
def test_the_rest_of_tritons_service_is_not_served(loop: str, name: str, error: str) -> None:
    received = question(name, service_pb2.RepositoryIndexRequest(), loop)
    assert (received.status, received.trailers["servegate-error"]) == (12, error)


# --- names ---------------------------------------------------------------------------------------

RENAMED = snapshot(view(target(2, "a", physical="m--01234567")))


def test_physical_names_are_seen_by_triton_alone(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, Received]:
        scene.triton.says = lambda request: answer("m--01234567", size=100_000)
        client = await scene.client()
        client.send(settings(window=1 << 20) + window(0, 1 << 20))
        client.call(1)
        [received] = await scene.over(client, 1)
        return received, scene.triton.calls[0]

    received, sent = play(scenario, loop, RENAMED)
    assert named(sent.messages[0]) == ("m--01234567", "2")
    response = service_pb2.ModelInferResponse.FromString(received.messages[0])
    assert (response.model_name, response.model_version) == ("m", "2")
    assert len(response.raw_output_contents[0]) == 100_000
    assert "grpc-accept-encoding" not in sent.heads[0]


def test_an_error_of_triton_names_the_model_that_was_asked(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        await until(lambda: bool(scene.triton.calls) and scene.triton.calls[0].ended)
        scene.triton.refuse(1, 3, "no input for model 'm--01234567'")
        [received] = await scene.over(client, 1)
        return received

    assert play(scenario, loop, RENAMED).trailers["grpc-message"] == "no input for model 'm'"


@pytest.mark.parametrize("where", ["behind", "in front"])
def test_of_two_names_in_a_message_triton_sees_the_one_that_was_routed(
    loop: str, where: str
) -> None:
    other = service_pb2.ModelInferRequest(model_name="other", model_version="7").SerializeToString()
    whole = message(infer() + other if where == "behind" else other + infer(version="1"))

    async def scenario(scene: Scene) -> bytes:
        client = await scene.client()
        client.open(1)
        for at in range(0, len(whole), 30):
            client.send(frame(DATA, END_STREAM * (at + 30 >= len(whole)), 1, whole[at : at + 30]))
        await scene.over(client, 1)
        return scene.triton.calls[0].messages[0]

    assert named(play(scenario, loop, ONE)) == ("m", "1")


@pytest.mark.parametrize(("sequences", "replicas"), [(True, 1), (False, 2)])
def test_calls_of_a_sequence_stay_on_one_replica(loop: str, sequences: bool, replicas: int) -> None:
    request = service_pb2.ModelInferRequest(model_name="m")
    request.parameters["sequence_id"].int64_param = 77

    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        for stream in (1, 3, 5, 7):
            await scene.call(client, stream, request.SerializeToString())
        return sum(bool(triton.calls) for triton in scene.tritons.values())

    now = snapshot(view(target(1, "a", "b"), sequences=sequences))
    assert play(scenario, loop, now) == replicas


@pytest.mark.parametrize("cut", [20, 1 << 14])
@pytest.mark.parametrize("method", [INFER, STREAM])
def test_a_message_cannot_swallow_the_names_that_are_appended(
    loop: str, cut: int, method: str
) -> None:
    hostile = infer() + infer("other", "7")[:10] + b"\x3a" + bytes((3 + 3,))

    async def scenario(scene: Scene) -> Received:
        scene.triton.answers = False
        client = await scene.client()
        client.open(1, method)
        whole = message(hostile)
        for at in range(0, len(whole), cut):
            client.send(frame(DATA, END_STREAM * (at + cut >= len(whole)), 1, whole[at : at + cut]))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert (received.status, received.trailers["servegate-error"]) == (13, "unparsable")
