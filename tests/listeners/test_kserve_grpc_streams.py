"""ModelStreamInfer: every message is routed by itself, and the answers come as one stream."""

import gzip
from dataclasses import replace
from functools import partial

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    PREFACE,
    RST_STREAM,
    STREAM,
    Client,
    Peer,
    Received,
    Triton,
    frame,
    infer,
    message,
    reset,
    settings,
    window,
)
from listeners.grpc_scene import ONE, Scene, failed, in_scene, read, said, send, stage, stream_of
from listeners.grpc_scene import TWO as REPLICAS
from loops import on_loops
from tritonclient.grpc import service_pb2

TWO = snapshot(view(target(1, "a")), view(target(1, "b", model="n"), name="n"), generation=7)
RENAMED = snapshot(
    view(target(2, "a", physical="m--01234567")), view(target(1, "a", model="n"), name="n")
)


def ids(received: Received) -> list[str]:
    return [entry[0] for entry in read(received)]


def half_close(client: Client) -> None:
    client.send(frame(DATA, END_STREAM, 1))


async def heard(triton: Triton, count: int) -> Peer:
    """Its connection, once so many messages have come."""
    await until(lambda: len(triton.messages) >= count)
    return triton.peer


def pair(scene: Scene) -> tuple[Triton, Triton]:
    return scene.tritons["a"], scene.tritons["b"]


@in_scene(TWO)
async def test_messages_go_where_they_are_routed_and_answers_come_together(scene: Scene) -> None:
    client = await stream_of(scene, infer("m", id="1"), infer("n", id="2"), infer("m", id="3"))
    a, b = pair(scene)
    await heard(a, 2)
    await heard(b, 1)
    for triton, answers in ((a, [said("1"), said("3")]), (b, [said("2", "n")])):
        triton.head(1)
        for one in answers:
            triton.data(1, message(one))
    await until(lambda: len(client.streams[1].messages) == 3)
    half_close(client)
    await until(lambda: a.calls[0].ended and b.calls[0].ended)
    a.end(1)
    b.end(1)
    [received] = await scene.over(client, 1)
    assert sorted(read(received)) == [("1", "m", "1"), ("2", "n", "1"), ("3", "m", "1")]
    assert [entry[0] for entry in read(received) if entry[1] == "m"] == ["1", "3"]
    for triton, expected in ((a, [("1", "1"), ("3", "1")]), (b, [("2", "1")])):
        passed = map(service_pb2.ModelInferRequest.FromString, triton.messages)
        assert [(one.id, one.model_version) for one in passed] == expected
    assert received.status == 0
    assert received.trailers["servegate-version"] == "1; by=latest; generation=7"


@in_scene(snapshot(view(target(1, "a")), replicas=["b"]))
async def test_a_stream_goes_on_elsewhere_when_its_replica_leaves(scene: Scene) -> None:
    client = await stream_of(scene, infer("m", id="1"), infer("m", id="2"))
    a, b = pair(scene)
    await heard(a, 2)
    a.head(1)
    a.data(1, message(said("1")))
    await until(lambda: len(client.streams[1].messages) == 1)
    replicas = scene.plane.live.snapshot.replicas
    left = replace(snapshot(view(target(1, "b")), generation=2), replicas={"b": replicas["b"]})
    scene.plane.live.swap(left)
    scene.sweep()
    await until(lambda: a.calls[0].ended)
    a.data(1, message(said("2")))
    a.end(1)
    await until(lambda: len(client.streams[1].messages) == 2)
    send(client, message(infer("m", id="3")), ends=False)
    await heard(b, 1)
    half_close(client)
    await until(lambda: b.calls[0].ended)
    b.answer(1, said("3"))
    [received] = await scene.over(client, 1)
    assert (received.status, ids(received)) == (0, ["1", "2", "3"])
    assert [len(triton.calls) for triton in (a, b)] == [1, 1]


@in_scene(TWO)
async def test_answers_are_mixed_at_the_borders_of_messages_only(scene: Scene) -> None:
    client = await stream_of(scene, infer("m"), infer("n"), ends=True)
    a, b = pair(scene)
    await heard(a, 1)
    await heard(b, 1)
    long, short = message(said("a", size=900)), message(said("b", "n"))
    a.head(1)
    b.head(1)
    a.data(1, long[:400])
    await until(lambda: bool(client.streams[1].body))
    b.data(1, short)
    b.data(1, short)
    b.end(1)
    a.data(1, long[400:])
    a.data(1, long)
    a.end(1)
    [received] = await scene.over(client, 1)
    assert (received.status, sorted(ids(received))) == (0, ["a", "a", "b", "b"])


@in_scene(ONE)
async def test_a_message_that_cannot_be_routed_is_answered_in_the_stream(scene: Scene) -> None:
    client = await stream_of(scene, infer("x" * 5000, id="long"))
    for number in range(5):
        send(client, message(infer("x", id=str(number), size=900_000)), ends=False)
        await until(lambda n=number: len(client.streams[1].messages) == n + 2)  # type: ignore[misc]
    send(client, message(infer("m", id="good")))
    await heard(scene.triton, 1)
    await until(lambda: scene.triton.calls[0].ended)
    scene.triton.answer(1, said("good"))
    [received] = await scene.over(client, 1)
    assert (received.status, ids(received)) == (0, ["long", *"01234", "good"])
    assert read(received)[1][1] == "Request for unknown model: 'x' is not found"


@in_scene(ONE)
async def test_a_stream_ends_with_the_status_that_it_should(scene: Scene) -> None:
    strict = [("triton_grpc_error", "true")]
    refused = await scene.sent(
        frame(DATA, 0, 1, message(infer("x"))), method=STREAM, metadata=strict
    )
    assert (refused.status, refused.trailers["servegate-error"]) == (5, "unknown_model")
    empty = await scene.sent(frame(DATA, END_STREAM, 1), method=STREAM)
    assert (empty.status, empty.messages) == (0, [])
    cut_off = await scene.sent(frame(DATA, END_STREAM, 1, message(infer())[:-1]), method=STREAM)
    assert cut_off.status == 3
    late = await stream_of(scene, metadata=[("grpc-timeout", "2S")])
    await until(late.ping())
    scene.sweep(2.1)
    [received] = await scene.over(late, 1)
    assert received.status == 4


@pytest.mark.parametrize("how", ["status", "reset", "closed"])
@in_scene(TWO)
async def test_the_first_branch_that_ends_badly_ends_the_stream(scene: Scene, how: str) -> None:
    client = await stream_of(scene, infer("m"), infer("n"))
    a, b = pair(scene)
    await heard(a, 1)
    await heard(b, 1)
    b.head(1)
    b.data(1, message(said("b", "n")))
    await until(lambda: bool(client.streams[1].messages))
    if how == "status":
        a.refuse(1, 13, "it broke")
    elif how == "reset":
        a.peer.send(reset(1, 2))
    else:
        a.head(1)
        a.peer.abort()
    [received] = await scene.over(client, 1)
    if scene.pool.streams:  # absorbed: it ends by itself
        b.end(1)
    outcome = (received.status, received.trailers.get("servegate-error"))
    assert outcome == ((13, None) if how == "status" else (14, "outcome_unknown"))


@on_loops()
async def test_a_client_that_leaves_its_stream_leaves_nothing_behind() -> None:
    for cancel in ("absorb", "forward"):
        async with stage(ONE, cancel=cancel) as scene:
            client = await stream_of(scene, infer("m"))
            peer = await heard(scene.triton, 1)
            client.send(reset(1))
            [call] = scene.triton.calls
            await until(partial(getattr, call, "is_over"))
            if cancel == "absorb":
                scene.triton.answer(1, said("1"))
            await scene.quiet()
            is_reset = bool(peer.of(RST_STREAM))
            assert (is_reset, call.ended) == (cancel == "forward", cancel == "absorb")


@in_scene(REPLICAS)
async def test_the_first_message_goes_past_a_replica_that_is_not_reached(scene: Scene) -> None:
    a, b = pair(scene)
    a.close()
    client = await stream_of(scene, infer("m", id="1"), infer("m", id="2"), ends=True)
    await heard(b, 2)
    b.answer(1, said("1"))
    [received] = await scene.over(client, 1)
    assert (received.status, read(received)) == (0, [("1", "m", "1")])
    b.close()  # without any replica the message is answered in the stream
    await until(lambda: scene.pool.connections == 0)
    client = await stream_of(scene, infer("m", id="1"), ends=True)
    [received] = await scene.over(client, 1)
    [(identity, sentence, _)] = read(received)
    assert (received.status, identity) == (0, "1")
    assert "no replica is ready" in sentence


@in_scene(ONE)
async def test_messages_may_be_cut_anywhere_and_be_of_any_size(scene: Scene) -> None:
    bodies = [infer("m", id=str(number), size=size) for number, size in enumerate((0, 9, 70_000))]
    whole = b"".join(map(message, bodies))
    scene.triton.greeting = settings(window=1 << 20) + window(0, 1 << 20)
    client = await stream_of(scene)
    send(client, whole[:300], cut=1, ends=False)
    send(client, whole[300:], cut=999)
    await heard(scene.triton, 3)
    scene.triton.answer(1, said("1"))
    await scene.over(client, 1)
    passed = zip(scene.triton.messages, bodies, strict=True)
    assert [one.startswith(body) for one, body in passed] == [True] * 3


@in_scene(snapshot(view(target(1, "a"), sequences=True)))
async def test_compressed_messages_and_sequences_are_read_as_a_whole(scene: Scene) -> None:
    request = service_pb2.ModelInferRequest(model_name="m", id="s")
    request.parameters["sequence_id"].int64_param = 77
    packed = message(gzip.compress(infer("m", id="z", size=5000)), flag=1)
    client = await stream_of(scene, metadata=[("grpc-encoding", "gzip")])
    client.send(frame(DATA, 0, 1, packed[:20]), frame(DATA, 0, 1, packed[20:]))
    send(client, message(request.SerializeToString()))
    await heard(scene.triton, 2)
    scene.triton.answer(1, said("1"))
    await scene.over(client, 1)
    parsed = map(service_pb2.ModelInferRequest.FromString, scene.triton.messages)
    assert [one.id for one in parsed] == ["z", "s"]


@in_scene(RENAMED)
async def test_physical_names_are_restored_message_by_message(scene: Scene) -> None:
    client = await stream_of(scene, infer("m"), infer("m"), ends=True)
    await heard(scene.triton, 2)
    answers = [
        said("1", "m--01234567", 50_000),
        said("2", "m--01234567", version=""),
        said("3", "m--01234567"),
        failed("no input for 'm--01234567'"),
    ]
    scene.triton.head(1)
    whole = b"".join(map(message, answers))
    for at in range(0, len(whole), 1000):
        scene.triton.data(1, whole[at : at + 1000])
    scene.triton.end(1)
    [received] = await scene.over(client, 1)
    assert read(received) == [
        ("1", "m", "2"),
        ("2", "m", ""),
        ("3", "m", "2"),
        ("", "no input for 'm'", ""),
    ]


@in_scene(ONE)
async def test_a_client_that_reads_slowly_slows_its_own_stream_down(scene: Scene) -> None:
    scene.silence()
    client = await scene.client(PREFACE + settings(window=100))
    client.open(1, STREAM)
    send(client, message(infer("m")))
    peer = await heard(scene.triton, 1)
    whole = message(said("1", size=300_000)) * 3
    scene.triton.head(1)
    for at in range(0, len(whole), 1 << 14):
        scene.triton.data(1, whole[at : at + (1 << 14)])
    scene.triton.end(1)
    await until(lambda: len(client.streams[1].body) == 100)
    await until(lambda: scene.listener.held > 900_000 - 2000)
    assert scene.listener.held <= 1 << 20
    assert peer.of(8, 1) == []
    client.send(window(0, 1 << 24), window(1, 1 << 24))
    [received] = await scene.over(client, 1)
    assert len(received.messages) == 3


@in_scene(ONE)
async def test_a_stream_may_live_longer_than_a_call(scene: Scene) -> None:
    client = await stream_of(scene, infer("m"))
    await heard(scene.triton, 1)
    scene.sweep(100.0)
    scene.sweep(1000.0)
    assert scene.listener.calls == 1
    half_close(client)
    await until(lambda: scene.triton.calls[0].ended)
    scene.triton.answer(1, said("1"))
    [received] = await scene.over(client, 1)
    assert received.status == 0
