"""Routes with a deadline or with calls that may be executed twice, over all protocols."""

import itertools

from builders import snapshot, target, until, view
from grpc_wire import answer, message, reset
from listeners import grpc_scene
from listeners.http_messages import reply, request
from listeners.http_replicas import Received, Replica, Script
from listeners.http_scene import Scene, in_scene
from listeners.tfserving_scene import Front, gives_its_input, in_front, model
from loops import on_loops

from serve.core.routes import RouteRules
from serve.core.snapshot import Snapshot


def ruled(**rules: object) -> Snapshot:
    known = RouteRules(**rules)  # type: ignore[typeddict-item]
    return snapshot(view(target(1, "a", "b"), split="1=1", rules=known))


TWICE, SHORT = ruled(idempotent=True), ruled(deadline=2.0)


def first_breaks(replicas: list[Replica], then: Script, start: bytes = b"") -> list[Replica]:
    """Whichever replica is asked to predict first sends this much of an answer and goes away."""
    tried: list[Replica] = []

    def script(one: Replica) -> Script:
        async def play(asked: Received) -> None:
            if asked.line.startswith("GET "):
                await then(asked)
                return
            tried.append(one)
            if len(tried) > 1:
                await then(asked)
                return
            await asked.read()
            if start:
                asked.write(start)
                await asked.drain()
            asked.close()

        return play

    for one in replicas:
        one.script = script(one)
    return tried


async def echoes_size(asked: Received) -> None:
    await asked.read()
    asked.write(reply(b"%d" % asked.size))


@in_scene(TWICE)
async def test_http_calls_are_repeated_until_their_answer_has_begun(scene: Scene) -> None:
    error = b"HTTP/1.1 500 X\r\nContent-Length: 100\r\n\r\n{"  # held back, to be judged
    for start, is_repeated in ((b"", True), (error, True), (reply(bytes(99))[:-1], False)):
        tried = first_breaks(scene.replicas, echoes_size, start)
        client = await scene.connect()
        if is_repeated:
            got = await client.ask(request(bytes(1000)))
            assert (got.status, got.body, len(tried)) == (200, b"1000", 2), start
        else:
            await client.send(request(bytes(1000)))
            assert (await client.head()).status == 200
            assert len(tried) == 1


@in_scene(TWICE)
async def test_an_http_call_that_was_too_large_to_be_kept_is_not_repeated(scene: Scene) -> None:
    tried = first_breaks(scene.replicas, echoes_size)
    got = await scene.ask(request(bytes(3 << 20)))
    assert (got.status, got.code, len(tried)) == (502, "outcome_unknown", 1)


@on_loops()
async def test_grpc_calls_are_repeated_until_their_answer_has_begun() -> None:
    for how, when in itertools.product(("reset", "closed"), ("before", "head", "data")):
        async with grpc_scene.stage(TWICE) as scene:
            scene.silence()
            client = await scene.client()
            client.call(1)
            await until(lambda: any(c.ended for t in scene.tritons.values() for c in t.calls))
            [first] = await scene.asked()
            for triton in scene.tritons.values():
                triton.answers = triton is not first
            if when != "before":
                first.head(1)
            if when == "data":
                first.data(1, message(answer())[:9])
            if how == "closed":
                first.peer.abort()
            else:
                first.peer.send(reset(1, 2))
            [received] = await scene.over(client, 1)
            tried = sum(len(triton.calls) for triton in scene.tritons.values())
            assert (received.status, tried) == ((14, 1) if when == "data" else (0, 2)), (how, when)


@in_front(TWICE)
async def test_calls_of_tensorflow_serving_are_repeated(front: Front) -> None:
    tried = first_breaks(front.replicas, model(gives_its_input))
    status, _ = await front.post("/v1/models/m:predict", {"instances": [[1.0, 2.0]]})
    assert (status, len(tried)) == (200, 2)


@in_scene(SHORT)
async def test_an_http_call_ends_at_the_deadline_of_its_route(scene: Scene) -> None:
    hand = scene.a.by_hand()
    scene.b.script = hand.script
    client = await scene.connect()
    await client.send(request())
    call = await hand.call()
    scene.pass_time(1.9)
    assert scene.listener.clients
    scene.pass_time(0.1)
    got = await client.answer()
    assert (got.status, got.code) == (504, "deadline_exceeded")
    assert scene.plane.loads.total == 1, "Triton still works on it"
    await hand.answer(call)
    await until(lambda: scene.plane.loads.total == 0)


@grpc_scene.in_scene(SHORT)
async def test_a_grpc_call_ends_at_the_deadline_of_its_route(scene: grpc_scene.Scene) -> None:
    scene.silence()
    client = await scene.client()
    client.call(1)
    await scene.asked()
    scene.sweep(2)
    [received] = await scene.over(client, 1)
    assert received.trailers["servegate-error"] == "deadline_exceeded"
    [(triton, number, peer)] = [
        (triton, number, peer)
        for triton in scene.tritons.values()
        for peer in triton.peers
        for number in peer.streams
        if number
    ]
    triton.answer(number, peer=peer)
