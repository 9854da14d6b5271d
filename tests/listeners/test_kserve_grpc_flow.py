"""Flow control: a slow peer holds up its own stream, and a window of it at most."""

import itertools

from builders import until
from grpc_wire import (
    DATA,
    PREFACE,
    WINDOW_UPDATE,
    Peer,
    Received,
    answer,
    infer,
    message,
    settings,
    window,
)
from listeners.grpc_scene import ONE, WIDE, Scene, in_scene, send

WINDOW = 1 << 20
FRAME = 1 << 14


@in_scene(ONE, is_quiet=False)
async def test_a_blocked_stream_holds_a_window_and_the_others_pass(scene: Scene) -> None:
    whole = message(infer(size=2 * WINDOW))
    scene.triton.greeting = settings(window=0)
    client = await scene.client()
    for stream in (1, 3):
        client.open(stream)
        send(client, whole[:WINDOW], stream, ends=False)
    await until(client.ping())
    await until(lambda: len(scene.triton.calls) == 2)
    assert 2 * WINDOW <= scene.listener.held <= 2 * WINDOW + 2000
    client.call(5)
    await until(lambda: len(scene.triton.calls) == 3)
    scene.triton.peer.send(window(0, 1 << 24), window(5, 1000))
    [small] = await scene.over(client, 5)
    assert small.status == 0
    assert client.of(WINDOW_UPDATE, 1) == []
    scene.triton.peer.send(window(1, 1 << 24), window(3, 1 << 24))
    await until(lambda: bool(client.of(WINDOW_UPDATE, 1) and client.of(WINDOW_UPDATE, 3)))


async def give_credit(received: Received, giver: Peer, size: int) -> None:
    """Let a message come to its end, so many bytes at a time."""
    seen = 0
    while not received.ended:
        await until(lambda: len(received.body) > seen or received.ended)  # noqa: B023
        seen = len(received.body)
        giver.send(window(1, size))


@in_scene(ONE, pings=10_000)
async def test_the_smallest_windows_of_either_side_are_kept(scene: Scene) -> None:
    body = infer(size=700)
    scene.triton.greeting = settings(window=1)
    scene.triton.says = lambda request: answer(size=2000)
    first = await scene.client(PREFACE + WIDE)
    first.call(1, body)
    await until(lambda: bool(scene.triton.calls))
    [sent] = scene.triton.calls
    await give_credit(sent, scene.triton.peer, 1)
    await scene.over(first, 1)
    assert max(len(one.payload) for one in scene.triton.peer.of(DATA)) <= 1
    assert sent.messages[0].startswith(body)
    scene.triton.peer.send(settings(window=1 << 20))
    for size in (1, 10, 1000):
        client = await scene.client(PREFACE + settings(window=size))
        client.call(1)
        received = client.streams[1]
        await give_credit(received, client, size)
        assert max(len(one.payload) for one in client.of(DATA)) <= size
        assert (received.status, received.messages) == (0, [answer(size=2000)]), size


@in_scene(ONE)
async def test_a_setting_may_make_windows_negative(scene: Scene) -> None:
    scene.triton.says = lambda request: answer(size=30_000)
    client = await scene.client(PREFACE + settings(window=20_000))
    client.call(1)
    received = client.streams.setdefault(1, Received())
    await until(lambda: len(received.body) == 20_000)
    client.send(settings(window=0), window(1, 15_000))  # the window is now -5,000
    await until(client.ping())
    assert len(received.body) == 20_000
    client.send(window(1, 5_001))
    await until(lambda: len(received.body) == 20_001)
    client.send(settings(window=20_000))
    await scene.over(client, 1)
    assert received.status == 0


@in_scene(ONE)
async def test_the_window_of_the_connection_is_shared_in_turns(scene: Scene) -> None:
    scene.triton.says = lambda request: answer(size=100_000)
    client = await scene.client(PREFACE + settings(window=1 << 20))
    for stream in (1, 3, 5):
        client.call(stream)
    await until(lambda: sum(len(one.payload) for one in client.of(DATA)) == 65_535)
    client.frames.clear()
    client.send(window(0, 6 * FRAME))
    await until(lambda: sum(len(one.payload) for one in client.of(DATA)) == 6 * FRAME)
    turns = [one.stream for one in client.of(DATA)]
    client.send(window(0, 1 << 24))
    await scene.over(client, 1, 3, 5)
    assert {turns.count(stream) for stream in (1, 3, 5)} <= {1, 2, 3}
    assert all(a != b for a, b in itertools.pairwise(turns))


@in_scene(ONE)
async def test_frames_are_cut_at_what_the_peer_takes(scene: Scene) -> None:
    scene.triton.greeting = settings(frame=1 << 15, window=1 << 20) + window(0, 1 << 20)
    scene.triton.says = lambda request: answer(size=200_000)
    client = await scene.client(PREFACE + WIDE)
    client.open(1)
    send(client, message(infer(size=200_000)), cut=1 << 18)
    await scene.over(client, 1)
    assert max(len(one.payload) for one in scene.triton.peer.of(DATA)) == 1 << 15
    assert max(len(one.payload) for one in client.of(DATA)) == 1 << 14


@in_scene(ONE)
async def test_a_client_that_does_not_read_holds_up_no_other(scene: Scene) -> None:
    scene.triton.says = lambda request: answer(size=900_000 if len(request) > 500 else 8)
    slow = await scene.client(PREFACE + settings(window=1 << 30) + window(0, 1 << 30))
    await until(slow.ping())
    slow.pause_reading()
    streams = range(1, 41, 2)
    for stream in streams:
        slow.call(stream, infer(size=600))
    quick = await scene.client()
    for stream in (1, 3, 5):
        assert (await scene.call(quick, stream)).status == 0
    await until(lambda: sum(call.ended for call in scene.triton.calls) == 23)
    assert not any(slow.streams.get(n, Received()).ended for n in streams)
    slow.resume_reading()
    for late in await scene.over(slow, *streams):
        assert len(late.messages[0]) > 900_000


@in_scene(ONE)
async def test_answers_of_many_streams_interleave(scene: Scene) -> None:
    scene.silence()
    client = await scene.client()
    streams = range(1, 41, 2)
    for stream in streams:
        client.call(stream)
    await until(lambda: sum(call.ended for call in scene.triton.calls) == 20)
    whole = message(answer(size=100))
    numbers = sorted(n for n in scene.triton.peer.streams if n)
    for n in numbers:
        scene.triton.head(n)
    for at in range(0, len(whole), 30):
        for n in reversed(numbers):
            scene.triton.data(n, whole[at : at + 30])
    for n in numbers:
        scene.triton.end(n)
    answers = await scene.over(client, *streams)
    assert [one.messages for one in answers] == [[answer(size=100)]] * 20
