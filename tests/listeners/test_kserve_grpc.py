"""The gRPC listener, in frames: a call goes through as it is, and nothing is left of it."""

import gzip
import zlib

import pytest
from builders import snapshot, target, view
from google.protobuf.message import Message
from grpc_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    INFER,
    PREFACE,
    STREAM,
    Received,
    answer,
    block,
    frame,
    infer,
    message,
)
from listeners.grpc_scene import RENAMED, WIDE, Scene, in_scene, send, stage, upload
from loops import on_loops
from tritonclient.grpc import service_pb2

from serve.wire.kserve_grpc import SERVICE

ONE = snapshot(view(target(1, "a"), labels={"stable": 1}), generation=7)
DECISION = "1; by=latest; generation=7"


def named(sent: bytes) -> tuple[str, str]:
    request = service_pb2.ModelInferRequest.FromString(sent)
    return request.model_name, request.model_version


@in_scene(ONE)
async def test_a_call_has_its_version_and_the_answer_has_the_decision(scene: Scene) -> None:
    received = await scene.ask()
    assert received.messages == [answer()]
    assert received.heads[0] == dict(HEAD)
    assert received.trailers == {"grpc-status": "0", "servegate-version": DECISION}
    [sent] = scene.triton.calls
    [request] = sent.messages
    assert named(request) == ("m", "1")
    whole = service_pb2.ModelInferRequest.FromString(request)
    whole.model_version = ""
    assert whole == service_pb2.ModelInferRequest.FromString(infer())
    assert sent.heads[0][":path"] == INFER
    assert sent.ended


@pytest.mark.parametrize("cut", [1 << 14, 1 << 18, 1000])
@in_scene(ONE)
async def test_messages_of_any_size_pass_both_ways(scene: Scene, cut: int) -> None:
    scene.triton.greeting = WIDE
    for size in (0, 1, 4_000, 16_384, 70_000, 300_000, 3_000_000):
        scene.triton.says = lambda request, size=size: answer(size=size)  # type: ignore[misc]
        client = await scene.client(PREFACE + WIDE)
        client.open(1)
        await upload(client, message(infer(size=size)), cut=cut)
        [received] = await scene.over(client, 1)
        assert received.messages == [answer(size=size)], size
        [request] = scene.triton.calls[-1].messages
        assert request.startswith(infer(size=size)), size
        assert named(request) == ("m", "1")


# --- what comes back -----------------------------------------------------------------------------


@in_scene(ONE)
async def test_fields_without_meaning_pass_both_ways_in_their_order(scene: Scene) -> None:
    metadata = (("x-twice", "1"), ("trace-bin", "AP8"), ("x-twice", "2"), ("user-agent", "me"))
    metadata += (("servegate-version", "9"), ("x-forwarded-for", "10.0.0.1"))
    scene.silence()
    client = await scene.client()
    client.call(1, metadata=metadata)
    await scene.asked()
    scene.triton.head(1, ("x-head", "1"), ("x-head", "2"))
    scene.triton.data(1, message(answer()))
    scene.triton.end(1, 0, ("y-bin", "AP8"), ("x-trailer", "1"), ("x-trailer", "2"))
    [received] = await scene.over(client, 1)
    [sent] = scene.triton.calls
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


@in_scene(ONE)
async def test_a_status_of_triton_passes_with_its_message(scene: Scene) -> None:
    said = "gr%C3%B6%C3%9Fe"
    scene.triton.ends = lambda peer, stream: scene.triton.refuse(stream, 3, said, peer)
    received = await scene.ask()
    status = {"grpc-status": "3", "grpc-message": said, "servegate-version": DECISION}
    identity = {"servegate-request-id": received.request_id}
    assert received.heads == [dict(HEAD) | status | identity]


@in_scene(ONE, body=4000)
async def test_an_error_of_the_gateway_has_a_code_of_the_gateway(scene: Scene) -> None:
    unknown = "Request for unknown model:"
    for body, status, error, said in (
        (infer("x"), 5, "unknown_model", f"{unknown} 'x' is not found"),
        (infer("gr\u00f6"), 5, "unknown_model", f"{unknown} 'gr%C3%B6' is not found"),
        (infer("m", "9"), 5, "unknown_version", f"{unknown} 'm' version 9"),
        (infer("m", "x"), 5, "unknown_label", f"{unknown} 'm' label 'x'"),
        (b"\xff\xff\xff", 13, "unparsable", "Unable to parse request"),
        (b"", 5, "unknown_model", f"{unknown} '' is not found"),
        (infer(size=5000), 8, "body_too_large", "the request body exceeds 4000 bytes"),
    ):
        received = await scene.ask(body)
        assert (received.status, received.trailers["servegate-error"]) == (status, error), said
        assert received.trailers["grpc-message"].startswith(said)
        assert len(received.heads) == 1


@in_scene(ONE)
async def test_a_unary_call_has_exactly_one_message(scene: Scene) -> None:
    one = message(infer())
    for case, bodies, status in (
        ("none", [b""], 12),
        ("cut off", [one[:-1]], 3),
        ("prefix cut off", [one[:3]], 3),
        ("two", [one, one], 12),
        ("two at once", [one * 2], 12),
        ("unknown flag", [message(infer(), flag=2)], 3),
        ("compressed, without an encoding", [message(infer(), flag=1)], 3),
    ):
        *first, last = bodies
        frames = [frame(DATA, 0, 1, body) for body in first]
        received = await scene.sent(*frames, frame(DATA, END_STREAM, 1, last))
        assert received.status == status, case


@in_scene(ONE, pings=10_000)
async def test_a_message_may_come_byte_by_byte_and_its_end_by_itself(scene: Scene) -> None:
    bytewise = [frame(DATA, 0, 1, bytes([byte])) for byte in message(infer())]
    trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, block(("x-checksum", "1")))
    for end in (frame(DATA, END_STREAM, 1), trailers):
        received = await scene.sent(*bytewise, end)
        assert named(scene.triton.messages[-1]) == ("m", "1")
        assert received.status == 0


@in_scene(ONE, inflated=1_000_000)
async def test_a_compressed_message_is_inflated_to_be_routed(scene: Scene) -> None:
    for encoding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        metadata = [("grpc-encoding", encoding)]
        packed = frame(DATA, END_STREAM, 1, message(compress(infer()), flag=1))
        assert (await scene.sent(packed, metadata=metadata)).status == 0
        sent = scene.triton.calls[-1]
        assert named(sent.messages[0]) == ("m", "1")
        assert "grpc-encoding" not in sent.heads[0]
        bomb = message(compress(infer(size=2_000_000)), flag=1)
        refused = await scene.sent(frame(DATA, END_STREAM, 1, bomb), metadata=metadata)
        assert (refused.status, refused.trailers["servegate-error"]) == (8, "inflated_too_large")


@in_scene(ONE, head=8000)
async def test_heads_that_grpc_does_not_know_are_refused(scene: Scene) -> None:
    for fields, status in (
        ([("grpc-timeout", "5X")], 3),
        ([("grpc-encoding", "br")], 12),
        ([("x-many", "1")] * 300, 8),
    ):
        received = await scene.sent(metadata=fields)
        assert (received.status, received.heads[0][":status"]) == (status, "200"), fields[0]


@in_scene(ONE)
async def test_what_is_no_grpc_gets_an_answer_of_http(scene: Scene) -> None:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": INFER,
        ":authority": "x",
        "content-type": "application/grpc",
    }
    for name, value, status in (
        (":method", "GET", "405"),
        ("content-type", "text/plain", "415"),
        ("content-type", "application/grpc-web", "415"),
    ):
        client = await scene.client()
        head = block(*(fields | {name: value}).items())
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, head))
        [received] = await scene.over(client, 1)
        identity = received.request_id
        assert received.heads == [{":status": status, "servegate-request-id": identity}]


# --- other questions -----------------------------------------------------------------------------


async def question(scene: Scene, name: str, request: Message) -> Received:
    """A question to a Triton that answers with the request."""
    scene.triton.says = lambda sent: sent
    return await scene.ask(request.SerializeToString(), SERVICE + name)


@in_scene(ONE)
async def test_the_gateway_answers_for_itself_whether_it_lives(scene: Scene) -> None:
    for name in ("ServerLive", "ServerReady"):
        received = await question(scene, name, service_pb2.ServerLiveRequest())
        assert received.messages == [b"\x08\x01"]
        assert received.trailers == {"grpc-status": "0"}
    assert scene.triton.calls == []


@in_scene(ONE)
async def test_questions_about_a_model_or_the_server_go_to_triton(scene: Scene) -> None:
    for name, asked, version in (
        ("ModelMetadata", service_pb2.ModelMetadataRequest(name="m"), ""),
        ("ModelMetadata", service_pb2.ModelMetadataRequest(name="m", version="stable"), "1"),
        ("ModelConfig", service_pb2.ModelConfigRequest(name="m"), ""),
        ("ModelStatistics", service_pb2.ModelStatisticsRequest(name="m"), ""),
        ("ModelReady", service_pb2.ModelReadyRequest(name="m"), "1"),
    ):
        [said] = (await question(scene, name, asked)).messages
        sent = type(asked).FromString(said)
        assert (sent.name, sent.version) == ("m", version), name
    server = await question(scene, "ServerMetadata", service_pb2.ServerMetadataRequest())
    assert (server.messages, server.status) == ([b""], 0)


@in_scene(ONE)
async def test_other_questions_are_refused_and_an_unknown_model_is_not_ready(scene: Scene) -> None:
    unknown = await question(scene, "ModelReady", service_pb2.ModelReadyRequest(name="x"))
    assert (unknown.messages, unknown.status) == ([b""], 0)
    assert unknown.trailers["servegate-error"] == "unknown_model"
    for name, error in (("RepositoryModelLoad", "not_served"), ("Nothing", "not_here")):
        received = await question(scene, name, service_pb2.RepositoryIndexRequest())
        assert (received.status, received.trailers["servegate-error"]) == (12, error)


# --- names ---------------------------------------------------------------------------------------


@in_scene(RENAMED)
async def test_physical_names_are_seen_by_triton_alone(scene: Scene) -> None:
    scene.triton.says = lambda request: answer("m--01234567", size=100_000)
    client = await scene.client(PREFACE + WIDE)
    received = await scene.call(client, 1)
    [sent] = scene.triton.calls
    assert named(sent.messages[0]) == ("m--01234567", "2")
    response = service_pb2.ModelInferResponse.FromString(received.messages[0])
    assert (response.model_name, response.model_version) == ("m", "2")
    assert len(response.raw_output_contents[0]) == 100_000
    assert "grpc-accept-encoding" not in sent.heads[0]
    said = "no input for model 'm--01234567'"
    scene.triton.ends = lambda peer, stream: scene.triton.refuse(stream, 3, said, peer)
    refused = await scene.call(client, 3)
    assert refused.trailers["grpc-message"] == "no input for model 'm'"


@in_scene(ONE)
async def test_of_two_names_in_a_message_triton_gets_the_routed_one(scene: Scene) -> None:
    other = service_pb2.ModelInferRequest(model_name="other", model_version="7").SerializeToString()
    for body in (infer() + other, other + infer(version="1")):
        client = await scene.client()
        client.open(1)
        send(client, message(body), cut=30)
        await scene.over(client, 1)
        assert named(scene.triton.messages[-1]) == ("m", "1")


@on_loops()
async def test_calls_of_a_sequence_stay_on_one_replica() -> None:
    request = service_pb2.ModelInferRequest(model_name="m")
    request.parameters["sequence_id"].int64_param = 77
    for sequences, replicas in ((True, 1), (False, 2)):
        async with stage(snapshot(view(target(1, "a", "b"), sequences=sequences))) as scene:
            for _ in range(4):
                await scene.ask(request.SerializeToString())
            assert sum(bool(triton.calls) for triton in scene.tritons.values()) == replicas


@in_scene(ONE)
async def test_a_message_cannot_swallow_the_names_that_are_appended(scene: Scene) -> None:
    scene.silence()
    hostile = infer() + infer("other", "7")[:10] + b"\x3a" + bytes((3 + 3,))
    for method in (INFER, STREAM):
        for cut in (20, 1 << 14):
            client = await scene.client()
            client.open(1, method)
            send(client, message(hostile), cut=cut)
            [received] = await scene.over(client, 1)
            outcome = (received.status, received.trailers["servegate-error"])
            assert outcome == (13, "unparsable"), (method, cut)
