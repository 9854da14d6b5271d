"""What becomes of messages of streams whose model's pool has been scaled to zero."""

import pytest
from builders import until
from grpc_wire import (
    DATA,
    END_STREAM,
    LOOPS,
    STREAM,
    Client,
    Received,
    Scene,
    frame,
    infer,
    message,
    play,
    reset,
)
from listeners.grpc_waking_scene import (
    ASLEEP,
    UNAVAILABLE,
    WIDE,
    asked,
    give_up,
    models,
    send,
    waiting,
    wake,
)
from tritonclient.grpc import service_pb2

STRICT = (("triton_grpc_error", "true"),)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def said(request: bytes) -> bytes:
    """The answer of Triton to a message of a stream, which names it."""
    one = service_pb2.ModelInferRequest.FromString(request)
    response = service_pb2.ModelStreamInferResponse()
    response.infer_response.id, response.infer_response.model_name = one.id, one.model_name
    return bytes(response.SerializeToString())


def answers(scene: Scene, name: str) -> None:
    """The replica answers what has come in its streams so far, and ends them."""
    triton = scene.tritons[name]
    for peer in triton.peers:
        for stream, call in peer.streams.items():
            if stream:
                triton.head(stream, peer=peer)
                for one in call.messages:
                    triton.data(stream, message(said(one)), peer)
                triton.end(stream, peer=peer)


def read(received: Received) -> list[tuple[str, str]]:
    """What each answer says: its id, and the model or the error."""
    responses = [service_pb2.ModelStreamInferResponse.FromString(one) for one in received.messages]
    return [
        (one.infer_response.id, one.infer_response.model_name or one.error_message)
        for one in responses
    ]


async def stream_of(scene: Scene, *bodies: bytes, **options: object) -> Client:
    for triton in scene.tritons.values():
        triton.answers = False
    client = await scene.client()
    client.open(1, STREAM, **options)  # type: ignore[arg-type]
    for body in bodies:
        send(client, message(body), ends=False)
    return client


def test_a_message_waits_and_those_behind_it_wait_in_their_order(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await stream_of(scene, infer(id="1"), infer("n", id="2"), infer(id="3"))
        await waiting(scene)
        client.send(frame(DATA, END_STREAM, 1))
        await until(lambda: not client.streams[1].is_over)
        assert asked(scene, "b") == []
        wake(scene)
        await until(lambda: len(asked(scene)) == 2 and len(asked(scene, "b")) == 1)
        assert [one.id for one in map(service_pb2.ModelInferRequest.FromString, asked(scene))] == [
            "1",
            "3",
        ]
        answers(scene, "a")
        answers(scene, "b")
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ASLEEP)
    assert received.status == 0
    assert sorted(read(received)) == [("1", "m"), ("2", "n"), ("3", "m")]


def test_a_message_of_which_a_part_comes_later_goes_on_whole(loop: str) -> None:
    async def scenario(scene: Scene) -> list[bytes]:
        scene.tritons["a"].greeting = WIDE
        whole = message(infer(size=900_000, id="1"))
        client = await stream_of(scene)
        send(client, whole[:300_000], ends=False)
        await waiting(scene)
        send(client, whole[300_000:400_000], ends=False)
        wake(scene)
        send(client, whole[400_000:], ends=True)
        await until(lambda: len(asked(scene)) == 1)
        answers(scene, "a")
        await scene.over(client, 1)
        return asked(scene)

    assert models(play(scenario, loop, ASLEEP)) == [("m", "1", 900_000)]


def test_a_message_whose_pool_does_not_wake_is_refused_and_the_stream_goes_on(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await stream_of(scene, infer(id="1"), infer("n", id="2"))
        await waiting(scene)
        give_up(scene)
        await until(lambda: len(asked(scene, "b")) == 1)
        client.send(frame(DATA, END_STREAM, 1))
        answers(scene, "b")
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ASLEEP)
    assert received.status == 0
    [(first, sentence), second] = read(received)
    assert first == "1" and "its pool did not wake within 10 s" in sentence
    assert second == ("2", "n")


def test_with_triton_grpc_error_it_ends_the_stream(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        client = await stream_of(scene, infer(id="1"), infer("n", id="2"), metadata=STRICT)
        await waiting(scene)
        give_up(scene)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ASLEEP)
    assert (received.status, received.trailers["servegate-error"]) == (UNAVAILABLE, "asleep")


def test_a_stream_whose_client_leaves_wakes_to_nothing(loop: str) -> None:
    async def scenario(scene: Scene) -> list[bytes]:
        client = await stream_of(scene, infer(id="1"), infer(id="2"))
        await waiting(scene)
        client.send(reset(1))
        await waiting(scene, 0)
        wake(scene)
        return asked(scene)

    assert play(scenario, loop, ASLEEP) == []


def test_a_stream_that_ends_badly_elsewhere_takes_the_waiting_message_along(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, list[bytes]]:
        client = await stream_of(scene, infer("n", id="1"), infer(id="2"), infer("n", id="3"))
        await waiting(scene)
        await until(lambda: len(asked(scene, "b")) == 1)
        scene.tritons["b"].refuse(1, 13, "it broke")
        [received] = await scene.over(client, 1)
        await waiting(scene, 0)
        wake(scene)
        return received.status, asked(scene)

    assert play(scenario, loop, ASLEEP) == (13, [])
