"""ModelStreamInfer: every message is routed by itself, and the answers come as one stream."""

import gzip
from dataclasses import replace

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    LOOPS,
    PREFACE,
    RST_STREAM,
    STREAM,
    Client,
    Peer,
    Received,
    Scene,
    Triton,
    frame,
    infer,
    message,
    play,
    reset,
    settings,
    window,
)
from tritonclient.grpc import service_pb2

Response = service_pb2.ModelStreamInferResponse
ONE = snapshot(view(target(1, "a")))
TWO = snapshot(view(target(1, "a")), view(target(1, "b", model="n"), name="n"), generation=7)
RENAMED = snapshot(
    view(target(2, "a", physical="m--01234567")), view(target(1, "a", model="n"), name="n")
)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def said(request_id: str, model: str = "m", size: int = 8, version: str = "1") -> bytes:
    """An answer of Triton in a stream."""
    response = Response()
    response.infer_response.id = request_id
    response.infer_response.model_name = model
    response.infer_response.model_version = version
    response.infer_response.raw_output_contents.append(bytes(size))
    return bytes(response.SerializeToString())


def failed(sentence: str) -> bytes:
    return bytes(Response(error_message=sentence).SerializeToString())


def read(received: Received) -> list[tuple[str, str, str]]:
    """What each answer says: its id, model and version, or its id and error."""
    found = []
    for one in received.messages:
        response = Response.FromString(one)
        inner = response.infer_response
        found.append((inner.id, inner.model_name or response.error_message, inner.model_version))
    return found


def ask(client: Client, stream: int, *bodies: bytes) -> None:
    for body in bodies:
        whole = message(body)
        for at in range(0, len(whole), 1 << 14):
            client.send(frame(DATA, 0, stream, whole[at : at + (1 << 14)]))


def half_close(client: Client, stream: int) -> None:
    client.send(frame(DATA, END_STREAM, stream))


async def heard(triton: Triton, count: int) -> Peer:
    """Wait until this many messages have come to the replica."""
    await until(lambda: sum(len(call.messages) for call in triton.calls) >= count)
    return triton.peer


def silent(scene: Scene) -> None:
    for triton in scene.tritons.values():
        triton.answers = False


def test_messages_go_where_they_are_routed_and_answers_come_together(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, dict[str, list[tuple[str, str]]]]:
        silent(scene)
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m", id="1"), infer("n", id="2"), infer("m", id="3"))
        a, b = scene.tritons["a"], scene.tritons["b"]
        await heard(a, 2)
        await heard(b, 1)
        for triton, answers in ((a, [said("1"), said("3")]), (b, [said("2", "n")])):
            triton.head(1)
            for one in answers:
                triton.data(1, message(one))
        await until(lambda: len(client.streams[1].messages) == 3)
        half_close(client, 1)
        await until(lambda: a.calls[0].ended and b.calls[0].ended)
        a.end(1)
        b.end(1)
        [received] = await scene.over(client, 1)
        passed = {
            name: [
                (request.id, request.model_version)
                for request in map(service_pb2.ModelInferRequest.FromString, t.calls[0].messages)
            ]
            for name, t in scene.tritons.items()
        }
        return received, passed

    received, passed = play(scenario, loop, TWO)
    assert sorted(read(received)) == [("1", "m", "1"), ("2", "n", "1"), ("3", "m", "1")]
    assert [entry[0] for entry in read(received) if entry[1] == "m"] == ["1", "3"]
    assert passed == {"a": [("1", "1"), ("3", "1")], "b": [("2", "1")]}
    assert received.status == 0
    assert received.trailers["servegate-version"] == "1; by=latest; generation=7"


def test_a_stream_goes_on_elsewhere_when_its_replica_leaves_which_says_what_it_owes(
    loop: str,
) -> None:
    async def scenario(scene: Scene) -> tuple[Received, list[bool]]:
        silent(scene)
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m", id="1"), infer("m", id="2"))
        a, b = scene.tritons["a"], scene.tritons["b"]
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
        ask(client, 1, infer("m", id="3"))
        await heard(b, 1)
        b.head(1)
        b.data(1, message(said("3")))
        half_close(client, 1)
        await until(lambda: b.calls[0].ended)
        b.end(1)
        [received] = await scene.over(client, 1)
        return received, [len(triton.calls) == 1 for triton in (a, b)]

    both = snapshot(view(target(1, "a")), replicas=["b"])
    received, once = play(scenario, loop, both)
    assert [entry[0] for entry in read(received)] == ["1", "2", "3"]
    assert received.status == 0
    assert once == [True, True]


def test_answers_are_mixed_at_the_borders_of_messages_only(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        silent(scene)
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m"), infer("n"))
        half_close(client, 1)
        a, b = scene.tritons["a"], scene.tritons["b"]
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
        return received

    received = play(scenario, loop, TWO)
    assert sorted(entry[0] for entry in read(received)) == ["a", "a", "b", "b"]
    assert received.status == 0


def test_a_message_that_cannot_be_routed_is_answered_in_the_stream(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        scene.triton.answers = False
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("x", id="7"), infer("x" * 5000, id="8"), infer("m", id="9", size=9))
        peer = await heard(scene.triton, 1)
        scene.triton.head(1, peer=peer)
        scene.triton.data(1, message(said("9")))
        half_close(client, 1)
        await until(lambda: scene.triton.calls[0].ended)
        scene.triton.end(1)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert [entry[0] for entry in read(received)] == ["7", "8", "9"]
    assert read(received)[0][1] == "Request for unknown model: 'x' is not found"
    assert received.status == 0


def test_a_message_that_cannot_be_routed_ends_the_stream_of_those_who_want_it(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, STREAM, metadata=[("triton_grpc_error", "true")])
        ask(client, 1, infer("x"))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert (received.status, received.trailers["servegate-error"]) == (5, "unknown_model")


def test_large_refused_messages_leave_nothing_behind(loop: str) -> None:
    async def scenario(scene: Scene) -> list[tuple[str, str, str]]:
        client = await scene.client()
        client.open(1, STREAM)
        for number in range(5):
            ask(client, 1, infer("x", id=str(number), size=900_000))
            await until(lambda n=number: len(client.streams[1].messages) == n + 1)
        half_close(client, 1)
        [received] = await scene.over(client, 1)
        return read(received)

    assert [entry[0] for entry in play(scenario, loop, ONE)] == ["0", "1", "2", "3", "4"]


def test_a_stream_without_a_message_ends_well(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await scene.client()
        client.open(1, STREAM)
        half_close(client, 1)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert (received.status, received.messages) == (0, [])


@pytest.mark.parametrize("how", ["status", "reset", "closed"])
def test_the_first_branch_that_ends_badly_ends_the_stream(loop: str, how: str) -> None:
    async def scenario(scene: Scene) -> Received:
        silent(scene)
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m"), infer("n"))
        a, b = scene.tritons["a"], scene.tritons["b"]
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
        return received

    received = play(scenario, loop, TWO)
    assert received.status == (13 if how == "status" else 14)
    if how != "status":
        assert received.trailers["servegate-error"] == "outcome_unknown"


@pytest.mark.parametrize("cancel", ["absorb", "forward"])
def test_a_client_that_leaves_its_stream_leaves_nothing_behind(loop: str, cancel: str) -> None:
    async def scenario(scene: Scene) -> tuple[bool, bool]:
        scene.triton.answers = False
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m"))
        peer = await heard(scene.triton, 1)
        client.send(reset(1))
        await until(lambda: scene.triton.calls[0].is_over)
        if cancel == "absorb":
            scene.triton.answer(1, said("1"))
        await scene.quiet()
        return bool(peer.of(RST_STREAM)), scene.triton.calls[0].ended

    told = (True, False) if cancel == "forward" else (False, True)
    assert play(scenario, loop, ONE, cancel=cancel) == told


def test_a_replica_that_cannot_be_reached_is_replaced_for_the_first_message(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        silent(scene)
        scene.tritons["a"].close()
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m", id="1"), infer("m", id="2"))
        half_close(client, 1)
        b = scene.tritons["b"]
        await heard(b, 2)
        b.answer(1, said("1"))
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, snapshot(view(target(1, "a", "b"))))
    assert (received.status, read(received)) == (0, [("1", "m", "1")])


def test_without_any_replica_the_message_is_answered_in_the_stream(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        scene.triton.close()
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m", id="1"))
        await until(lambda: bool(client.streams[1].messages))
        half_close(client, 1)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert received.status == 0
    assert [entry[0] for entry in read(received)] == ["1"]
    assert "no replica is ready" in read(received)[0][1]


def test_messages_may_be_cut_anywhere_and_be_of_any_size(loop: str) -> None:
    bodies = [infer("m", id=str(number), size=size) for number, size in enumerate((0, 9, 70_000))]
    whole = b"".join(message(body) for body in bodies)

    async def scenario(scene: Scene) -> list[bytes]:
        scene.triton.answers = False
        scene.triton.greeting = settings(window=1 << 20) + window(0, 1 << 20)
        client = await scene.client()
        client.open(1, STREAM)
        for at in range(300):
            client.send(frame(DATA, 0, 1, whole[at : at + 1]))
        for at in range(300, len(whole), 999):
            client.send(frame(DATA, 0, 1, whole[at : at + 999]))
        half_close(client, 1)
        await heard(scene.triton, 3)
        scene.triton.answer(1, said("1"))
        await scene.over(client, 1)
        return scene.triton.calls[0].messages

    passed = play(scenario, loop, ONE)
    assert [one.startswith(body) for one, body in zip(passed, bodies, strict=True)] == [True] * 3


def test_compressed_messages_and_those_of_sequences_are_read_as_a_whole(loop: str) -> None:
    request = service_pb2.ModelInferRequest(model_name="m", id="s")
    request.parameters["sequence_id"].int64_param = 77
    packed = message(gzip.compress(infer("m", id="z", size=5000)), flag=1)

    async def scenario(scene: Scene) -> list[str]:
        scene.triton.answers = False
        client = await scene.client()
        client.open(1, STREAM, metadata=[("grpc-encoding", "gzip")])
        client.send(frame(DATA, 0, 1, packed[:20]), frame(DATA, 0, 1, packed[20:]))
        ask(client, 1, request.SerializeToString())
        half_close(client, 1)
        await heard(scene.triton, 2)
        scene.triton.answer(1, said("1"))
        await scene.over(client, 1)
        parsed = map(service_pb2.ModelInferRequest.FromString, scene.triton.calls[0].messages)
        return [one.id for one in parsed]

    now = snapshot(view(target(1, "a"), sequences=True))
    assert play(scenario, loop, now) == ["z", "s"]


def test_physical_names_are_restored_message_by_message(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        scene.triton.answers = False
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m"), infer("m"))
        half_close(client, 1)
        await heard(scene.triton, 2)
        answers = [
            said("1", "m--01234567", 50_000),
            said("2", "m--01234567", version=""),
            said("3", "m--01234567"),
            failed("no input for 'm--01234567'"),
        ]
        scene.triton.head(1)
        whole = b"".join(message(one) for one in answers)
        for at in range(0, len(whole), 1000):
            scene.triton.data(1, whole[at : at + 1000])
        scene.triton.end(1)
        [received] = await scene.over(client, 1)
        return received

    assert read(play(scenario, loop, RENAMED)) == [
        ("1", "m", "2"),
        ("2", "m", ""),
        ("3", "m", "2"),
        ("", "no input for 'm'", ""),
    ]


def test_a_client_that_reads_slowly_slows_its_own_stream_down(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, int, int]:
        scene.triton.answers = False
        client = await scene.client(PREFACE + settings(window=100))
        client.open(1, STREAM)
        ask(client, 1, infer("m"))
        half_close(client, 1)
        peer = await heard(scene.triton, 1)
        whole = message(said("1", size=300_000))
        scene.triton.head(1)
        for at in range(0, 3 * len(whole), 1 << 14):
            scene.triton.data(1, (whole * 3)[at : at + (1 << 14)])
        scene.triton.end(1)
        await until(lambda: len(client.streams[1].body) == 100)
        await until(lambda: scene.listener.held > 900_000 - 2000)
        held, given = scene.listener.held, len(peer.of(8, 1))
        scene.triton.peers[0].frames.clear()
        client.send(window(0, 1 << 24), window(1, 1 << 24))
        [received] = await scene.over(client, 1)
        return held, given, len(received.messages)

    held, given, count = play(scenario, loop, ONE)
    assert held <= 1 << 20
    assert (given, count) == (0, 3)


def test_a_stream_may_live_longer_than_a_call(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[bool, int]:
        scene.triton.answers = False
        client = await scene.client()
        client.open(1, STREAM)
        ask(client, 1, infer("m"))
        await heard(scene.triton, 1)
        scene.sweep(100.0)
        scene.sweep(1000.0)
        lives = scene.listener.calls == 1
        half_close(client, 1)
        await until(lambda: scene.triton.calls[0].ended)
        scene.triton.answer(1, said("1"))
        [received] = await scene.over(client, 1)
        return lives, received.status

    assert play(scenario, loop, ONE) == (True, 0)


def test_the_deadline_of_a_stream_is_its_clients(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        client.open(1, STREAM, metadata=[("grpc-timeout", "2S")])
        await until(client.ping())
        scene.sweep(2.1)
        [received] = await scene.over(client, 1)
        return received.status

    assert play(scenario, loop, ONE) == 4
