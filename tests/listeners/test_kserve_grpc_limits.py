"""What one client may ask of a worker: time, bytes, streams, connections, and how it is let go."""

import pytest
from builders import until
from grpc_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    INFER,
    PREFACE,
    STREAM,
    frame,
    infer,
    message,
    request_block,
    settings,
)
from listeners.grpc_scene import ONE, WIDE, Scene, in_scene, send

CALM, NO_ERROR, LAST = 11, 0, (1 << 31) - 1
GREETING = PREFACE + settings()
HEAD = request_block(INFER)


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


@in_scene(ONE)
async def test_a_head_that_does_not_end_closes_the_connection(scene: Scene) -> None:
    for case, greeting in (
        ("nothing", b""),
        ("half a preface", PREFACE[:10]),
        ("half a frame", PREFACE + settings()[:5]),
        ("half a block", GREETING + frame(HEADERS, 0, 1, HEAD)),
        ("half a head", GREETING + frame(HEADERS, END_HEADERS, 1, HEAD)[:30]),
    ):
        assert await closed(scene, greeting, 10.0) == (True, [CALM]), case


@in_scene(ONE)
async def test_a_block_that_comes_in_drops_is_given_up_too(scene: Scene) -> None:
    client = await scene.client()
    client.send(frame(HEADERS, 0, 1, HEAD))
    for _ in range(60):
        if client.is_closed:
            break
        client.send(frame(CONTINUATION, 0, 1)[:3])
        scene.sweep(1.0)
        for _ in range(10):
            await until(lambda: True)
    await until(lambda: client.is_closed)
    assert client.of(GOAWAY)[0].code in (CALM, 1)


@in_scene(ONE, head_time=1e6)
async def test_a_connection_without_a_call_is_closed_after_a_while(scene: Scene) -> None:
    assert await closed(scene, GREETING, 75.0) == (True, [NO_ERROR])


@in_scene(ONE, pings=1000)
async def test_a_message_that_does_not_come_or_comes_in_drops_is_given_up(scene: Scene) -> None:
    stops, drips = await scene.client(), await scene.client()
    stops.open(1)
    drips.open(1)
    stops.send(frame(DATA, 0, 1, message(infer())[:20]))
    whole, begun = message(infer(size=100_000)), scene.plane.clock.now
    for at in range(0, 100_000, 100):
        drips.send(frame(DATA, 0, 1, whole[at : at + 100]))
        await until(drips.ping())
        await until(stops.ping())
        scene.sweep(1.0)
        if scene.listener.calls < 2:
            break
        assert scene.plane.clock.now - begun <= 33
    assert scene.plane.clock.now - begun >= 30
    scene.sweep(2.0)
    for client in (stops, drips):
        [received] = await scene.over(client, 1)
        assert (received.status, received.trailers["servegate-error"]) == (4, "too_slow")


@in_scene(ONE, is_quiet=False)
async def test_a_client_that_waits_for_us_owes_nothing(scene: Scene) -> None:
    scene.triton.greeting = settings(window=0)
    client = await scene.client()
    client.open(1)
    send(client, message(infer(size=1 << 20))[: 1 << 20], ends=False)
    await until(lambda: scene.listener.held >= 1 << 20)
    for _ in range(9):
        scene.sweep(25.0)
    assert scene.listener.calls == 1


@in_scene(ONE, in_flight=50_000)
async def test_a_worker_that_holds_as_much_as_it_may_refuses_new_calls(scene: Scene) -> None:
    scene.triton.greeting = b""  # not connected: what comes is held
    client = await scene.client()
    client.open(1)
    send(client, message(infer(size=60_000)))
    await until(lambda: scene.listener.held >= 50_000)
    refused = await scene.call(client, 3)
    assert (refused.status, refused.trailers["servegate-error"]) == (8, "no_room")
    await until(lambda: bool(scene.triton.peers))
    scene.triton.peer.send(settings())
    [answered] = await scene.over(client, 1)
    assert answered.status == 0


@in_scene(ONE, connections=2)
async def test_connections_beyond_the_limit_end_without_an_answer(scene: Scene) -> None:
    clients = [await scene.client() for _ in range(2)]
    for client in clients:
        await until(client.ping())
    late = await scene.client()
    await until(lambda: late.is_closed)
    assert late.frames == []
    clients[0].abort()
    await until(lambda: scene.listener.connections == 1)
    assert (await scene.call(clients[1], 1)).status == 0


@in_scene(ONE)
async def test_a_drain_sends_two_goaways_and_lets_calls_end(scene: Scene) -> None:
    client = await scene.unanswered()
    await has_call(scene, 1)
    scene.listener.drain()
    client.call(3)  # sent before the client knew of it
    await has_call(scene, 2)
    scene.sweep(0.6)
    client.call(5)  # too late
    await until(lambda: len(client.of(GOAWAY)) == 2)
    assert not scene.listener.is_idle
    for stream in (1, 3):
        scene.triton.answer(stream)
    received = await scene.over(client, 1, 3)
    scene.sweep(0.1)
    await until(lambda: client.is_closed)
    assert [one.number for one in client.of(GOAWAY)][:2] == [LAST, 3]
    assert [one.status for one in received] == [0, 0]


async def has_call(scene: Scene, count: int) -> None:
    """Until Triton has so many calls, whole."""
    await until(lambda: [call.ended for call in scene.triton.calls] == [True] * count)


@in_scene(ONE)
async def test_a_client_that_does_not_take_the_goodbye_is_cut_off(scene: Scene) -> None:
    client = await scene.client()
    await until(client.ping())
    client.pause_reading()
    client.send(frame(HEADERS, END_HEADERS, 2, b""))
    for _ in range(30):
        await until(lambda: True)
    scene.sweep(3.0)
    scene.sweep(3.0)
    await until(lambda: scene.listener.connections == 0)


@in_scene(ONE)
async def test_an_answer_that_is_not_taken_is_given_up(scene: Scene) -> None:
    client = await scene.client(PREFACE + settings(window=4))
    client.call(1)
    await until(lambda: len(client.streams[1].body) == 4)
    scene.sweep()
    scene.sweep(29.0)
    assert scene.listener.calls == 1
    scene.sweep(2.0)
    [received] = await scene.over(client, 1)
    assert received.reset == 8


# --- slow senders take no slot -------------------------------------------------------------------


@pytest.mark.parametrize("method", [INFER, STREAM])
@pytest.mark.parametrize(("size", "begun"), [(1000, 500), (200_000, 150_000), (1_000_000, 50_000)])
@in_scene(ONE, is_quiet=False)
async def test_a_message_that_has_not_come_holds_no_slot(
    scene: Scene, method: str, size: int, begun: int
) -> None:
    scene.silence()
    client, whole = await scene.client(), message(infer(size=size))
    client.open(1, method)
    send(client, whole[:begun], ends=False)
    await until(client.ping())
    await until(lambda: scene.pool.board.held >= begun - 5)  # the prefix is no part of it
    assert scene.plane.loads.total == 0
    send(client, whole[begun:])
    await until(lambda: scene.plane.loads.total == 1)


@in_scene(ONE, pings=10_000)
async def test_a_message_arrives_whole_whatever_its_pieces(scene: Scene) -> None:
    scene.triton.greeting = WIDE
    client = await scene.client()
    for stream, size in ((1, 100), (3, 20_000), (5, 40_000), (7, 300_000)):
        whole = message(infer(size=size))
        client.open(stream)
        for at in range(0, len(whole), 7_001):
            send(client, whole[at : at + 7_001], stream, ends=at + 7_001 >= len(whole))
            await until(client.ping())
        await scene.over(client, stream)
        [sent] = scene.triton.calls[-1].messages
        assert sent.startswith(infer(size=size)), size


@in_scene(ONE)
async def test_a_message_that_stops_moving_frees_its_slot_soon(scene: Scene) -> None:
    client = await scene.client()
    client.open(1)
    send(client, message(infer(size=1_000_000))[:300_000], ends=False)
    await until(lambda: scene.plane.loads.total == 1)
    scene.sweep()
    scene.sweep(4.0)
    assert scene.plane.loads.total == 1
    scene.sweep(2.0)
    [received] = await scene.over(client, 1)
    assert scene.plane.loads.total == 0
    assert received.trailers["servegate-error"] == "too_slow"


@in_scene(ONE, incomplete=2)
async def test_an_address_may_have_so_many_incomplete_messages(scene: Scene) -> None:
    client, whole = await scene.client(), message(infer())
    for stream in (1, 3, 5):
        client.open(stream)
        send(client, whole[:30], stream, ends=False)
        await until(client.ping())
        scene.sweep()
    [refused] = await scene.over(client, 5)
    assert (refused.status, refused.trailers["servegate-error"]) == (8, "too_many_incomplete")
    assert (await scene.call(client, 7)).status == 0
    for stream in (1, 3):
        send(client, whole[30:], stream)
    assert [one.status for one in await scene.over(client, 1, 3)] == [0, 0]


@in_scene(ONE)
async def test_an_unknown_model_is_refused_before_its_message_has_come(scene: Scene) -> None:
    client = await scene.client()
    client.open(1)
    send(client, message(infer("none", size=100_000))[:50_000], ends=False)
    [received] = await scene.over(client, 1)
    assert received.status == 5
