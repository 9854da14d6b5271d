"""What one client may ask of a worker: time, bytes, streams, connections, and how it is let go."""

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INFER,
    LOOPS,
    PREFACE,
    Frame,
    Received,
    Scene,
    frame,
    infer,
    message,
    play,
    request_block,
    settings,
)

ONE = snapshot(view(target(1, "a")))
CALM, NO_ERROR, LAST = 11, 0, (1 << 31) - 1
WHOLE = message(infer())


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def closed(scene: Scene, greeting: bytes, seconds: float) -> tuple[bool, list[int]]:
    """Whether a client that says no more is still there shortly before, and its GOAWAYs."""
    client = await scene.client(greeting, answers_settings=False)
    await until(lambda: bool(client.frames))
    scene.sweep()
    scene.sweep(seconds - 0.1)
    is_open = not client.is_closed
    scene.sweep(0.2)
    await until(lambda: client.is_closed)
    return is_open, [one.code for one in client.of(GOAWAY)]


@pytest.mark.parametrize(
    "greeting",
    [
        b"",
        PREFACE[:10],
        PREFACE + settings()[:5],
        PREFACE + settings() + frame(HEADERS, 0, 1, request_block(INFER)),
        PREFACE + settings() + frame(HEADERS, END_HEADERS, 1, request_block(INFER))[:30],
    ],
    ids=["nothing", "half a preface", "half a frame", "half a block", "half a head"],
)
def test_a_head_that_does_not_end_closes_the_connection(loop: str, greeting: bytes) -> None:
    async def scenario(scene: Scene) -> tuple[bool, list[int]]:
        return await closed(scene, greeting, 10.0)

    assert play(scenario, loop, ONE) == (True, [CALM])


def test_a_block_that_comes_in_drops_is_given_up_too(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        client = await scene.client()
        client.send(frame(HEADERS, 0, 1, request_block(INFER)))
        for _ in range(60):
            if client.is_closed:
                break
            client.send(frame(CONTINUATION, 0, 1)[:3])
            scene.sweep(1.0)
            for _ in range(10):
                await until(lambda: True)
        await until(lambda: client.is_closed)
        return [one.code for one in client.of(GOAWAY)]

    assert play(scenario, loop, ONE)[0] in (CALM, 1)


def test_a_connection_without_a_call_is_closed_after_a_while(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[bool, list[int]]:
        return await closed(scene, PREFACE + settings(), 75.0)

    assert play(scenario, loop, ONE, head_time=1e6) == (True, [NO_ERROR])


def test_a_message_that_does_not_come_is_given_up(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, int]:
        client = await scene.client()
        client.open(1)
        client.send(frame(DATA, 0, 1, WHOLE[:20]))
        await until(client.ping())
        scene.sweep()
        scene.sweep(29.0)
        calls = scene.listener.calls
        scene.sweep(2.0)
        [received] = await scene.over(client, 1)
        return received, calls

    received, calls = play(scenario, loop, ONE)
    assert calls == 1
    assert (received.status, received.trailers["servegate-error"]) == (4, "too_slow")


def test_a_message_that_comes_in_drops_is_given_up(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, float]:
        client = await scene.client()
        client.open(1)
        whole, at, begun = message(infer(size=100_000)), 0, scene.plane.clock.now
        while not client.streams.get(1, Received()).is_over:
            client.send(frame(DATA, 0, 1, whole[at : at + 100]))
            at += 100
            await until(client.ping())
            scene.sweep(1.0)
        return client.streams[1], scene.plane.clock.now - begun

    received, seconds = play(scenario, loop, ONE, pings=1000)
    assert received.trailers["servegate-error"] == "too_slow"
    assert 30 <= seconds <= 33


def test_a_client_that_waits_for_us_owes_nothing(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        scene.triton.greeting = settings(window=0)
        client = await scene.client()
        client.open(1)
        whole = message(infer(size=1 << 20))
        for at in range(0, 1 << 20, 1 << 14):
            client.send(frame(DATA, 0, 1, whole[at : at + (1 << 14)]))
        await until(lambda: scene.listener.held >= 1 << 20)
        for _ in range(9):
            scene.sweep(25.0)
        return scene.listener.calls

    assert play(scenario, loop, ONE, is_quiet=False) == 1


def test_a_worker_that_holds_as_much_as_it_may_refuses_new_calls(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, Received]:
        scene.triton.greeting = b""  # not connected: what comes is held
        client = await scene.client()
        client.open(1)
        whole = message(infer(size=60_000))
        for at in range(0, len(whole), 1 << 14):
            last = END_STREAM * (at + (1 << 14) >= len(whole))
            client.send(frame(DATA, last, 1, whole[at : at + (1 << 14)]))
        await until(lambda: scene.listener.held >= 50_000)
        refused = await scene.call(client, 3)
        await until(lambda: bool(scene.triton.peers))
        scene.triton.peer.send(settings())
        [answered] = await scene.over(client, 1)
        return refused, answered

    refused, answered = play(scenario, loop, ONE, in_flight=50_000)
    assert (refused.status, refused.trailers["servegate-error"]) == (8, "no_room")
    assert answered.status == 0


def test_connections_beyond_the_limit_end_before_a_word_is_said(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[list[Frame], int]:
        clients = [await scene.client() for _ in range(2)]
        for client in clients:
            await until(client.ping())
        late = await scene.client()
        await until(lambda: late.is_closed)
        clients[0].abort()
        await until(lambda: scene.listener.connections == 1)
        return late.frames, (await scene.call(clients[1], 1)).status

    assert play(scenario, loop, ONE, connections=2) == ([], 0)


def test_a_drain_asks_twice_and_lets_calls_end(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[list[int], list[int]]:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        await until(lambda: bool(scene.triton.calls) and scene.triton.calls[0].ended)
        scene.listener.drain()
        client.call(3)  # it had not heard of it
        await until(lambda: len(scene.triton.calls) == 2 and scene.triton.calls[1].ended)
        scene.sweep(0.6)
        client.call(5)  # too late
        await until(lambda: len(client.of(GOAWAY)) == 2)
        assert not scene.listener.is_idle
        for stream in (1, 3):
            scene.triton.answer(stream)
        received = await scene.over(client, 1, 3)
        scene.sweep(0.1)
        await until(lambda: client.is_closed)
        return [one.number for one in client.of(GOAWAY)], [one.status for one in received]

    told, statuses = play(scenario, loop, ONE)
    assert told[:2] == [LAST, 3]
    assert statuses == [0, 0]


def test_a_client_that_does_not_take_the_goodbye_is_cut_off(loop: str) -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await until(client.ping())
        client.pause_reading()
        client.send(frame(HEADERS, END_HEADERS, 2, b""))
        for _ in range(30):
            await until(lambda: True)
        await until(lambda: scene.listener.connections <= 1)
        scene.sweep(3.0)
        scene.sweep(3.0)
        await until(lambda: scene.listener.connections == 0)

    play(scenario, loop, ONE)


def test_an_answer_that_is_not_taken_is_given_up(loop: str) -> None:
    async def scenario(scene: Scene) -> int | None:
        client = await scene.client(PREFACE + settings(window=4))
        client.call(1)
        await until(lambda: len(client.streams[1].body) == 4)
        scene.sweep()
        scene.sweep(29.0)
        assert scene.listener.calls == 1
        scene.sweep(2.0)
        [received] = await scene.over(client, 1)
        return received.reset

    assert play(scenario, loop, ONE) == 8
