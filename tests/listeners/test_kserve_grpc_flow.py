"""Flow control: whoever is slow holds up its own stream, and a window of it at most."""

import itertools

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    LOOPS,
    PREFACE,
    WINDOW_UPDATE,
    Client,
    Received,
    Scene,
    answer,
    frame,
    infer,
    message,
    play,
    settings,
    window,
)

ONE = snapshot(view(target(1, "a")))
WINDOW = 1 << 20
FRAME = 1 << 14


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def upload(client: Client, stream: int, whole: bytes, upto: int) -> None:
    """The first bytes of a message, in frames."""
    for at in range(0, upto, FRAME):
        piece = whole[at : min(at + FRAME, upto)]
        client.send(frame(DATA, END_STREAM * (at + FRAME >= len(whole)), stream, piece))


def test_a_stream_that_cannot_go_on_holds_a_window_and_the_others_pass(loop: str) -> None:
    whole = message(infer(size=2 * WINDOW))

    async def scenario(scene: Scene) -> tuple[int, int, list[Received]]:
        scene.triton.greeting = settings(window=0)
        client = await scene.client()
        for stream in (1, 3):
            client.open(stream)
            upload(client, stream, whole, WINDOW)
        await until(client.ping())
        await until(lambda: len(scene.triton.calls) == 2)
        held = scene.listener.held
        client.call(5)
        await until(lambda: len(scene.triton.calls) == 3)
        scene.triton.peer.send(window(0, 1 << 24), window(5, 1000))
        [small] = await scene.over(client, 5)
        given = len(client.of(WINDOW_UPDATE, 1))
        scene.triton.peer.send(window(1, 1 << 24), window(3, 1 << 24))
        await until(lambda: bool(client.of(WINDOW_UPDATE, 1) and client.of(WINDOW_UPDATE, 3)))
        for stream in (1, 3):
            await until(lambda s=stream: sum(o.number for o in client.of(WINDOW_UPDATE, s)) > 0)
        return held, given, [small]

    held, given, answers = play(scenario, loop, ONE, is_quiet=False)
    assert held >= 2 * WINDOW
    assert held <= 2 * WINDOW + 2000
    assert given == 0
    assert [one.status for one in answers] == [0]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_smallest_windows_of_triton_are_kept(loop: str, size: int) -> None:
    body = infer(size=2000)

    async def scenario(scene: Scene) -> tuple[list[int], bytes]:
        scene.triton.greeting = settings(window=size)
        client = await scene.client()
        client.call(1, body)
        await until(lambda: bool(scene.triton.calls) and bool(scene.triton.calls[0].body))
        sent = scene.triton.calls[0]
        while not sent.ended:
            seen = len(sent.body)
            scene.triton.peer.send(window(1, size))
            await until(lambda seen=seen: len(sent.body) > seen or sent.ended)
        await scene.over(client, 1)
        return [len(one.payload) for one in scene.triton.peer.of(DATA)], sent.messages[0]

    lengths, passed = play(scenario, loop, ONE)
    assert max(lengths) <= size
    assert passed.startswith(body)


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_the_smallest_windows_of_a_client_are_kept(loop: str, size: int) -> None:
    async def scenario(scene: Scene) -> tuple[list[int], Received]:
        scene.triton.says = lambda request: answer(size=2000)
        client = await scene.client(PREFACE + settings(window=size))
        client.call(1)
        await until(lambda: bool(client.of(DATA)))
        received = client.streams[1]
        while not received.ended:
            seen = len(received.body)
            client.send(window(1, size))
            await until(lambda seen=seen: len(received.body) > seen or received.ended)
        return [len(one.payload) for one in client.of(DATA)], received

    lengths, received = play(scenario, loop, ONE, pings=10_000)
    assert max(lengths) <= size
    assert received.messages == [answer(size=2000)]
    assert received.status == 0


def test_a_setting_may_make_windows_negative(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        scene.triton.says = lambda request: answer(size=30_000)
        client = await scene.client(PREFACE + settings(window=20_000))
        client.call(1)
        received = client.streams.setdefault(1, Received())
        seen = []
        await until(lambda: len(received.body) == 20_000)
        client.send(settings(window=0), window(1, 15_000))  # the window is now -5,000
        await until(client.ping())
        seen.append(len(received.body))
        client.send(window(1, 5_001))
        await until(lambda: len(received.body) == 20_001)
        client.send(settings(window=20_000))
        await scene.over(client, 1)
        return [*seen, received.status]

    assert play(scenario, loop, ONE) == [20_000, 0]


def test_the_window_of_the_connection_is_shared_in_turns(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
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
        return turns

    turns = play(scenario, loop, ONE)
    assert {turns.count(stream) for stream in (1, 3, 5)} <= {1, 2, 3}
    assert all(a != b for a, b in itertools.pairwise(turns))


def test_frames_are_cut_at_what_the_peer_takes(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[int, int]:
        scene.triton.greeting = settings(frame=1 << 15, window=1 << 20) + window(0, 1 << 20)
        scene.triton.says = lambda request: answer(size=200_000)
        client = await scene.client(PREFACE + settings(window=1 << 20) + window(0, 1 << 20))
        client.open(1)
        client.send(frame(DATA, END_STREAM, 1, message(infer(size=200_000))))
        await scene.over(client, 1)
        sent = max(len(one.payload) for one in scene.triton.peer.of(DATA))
        return sent, max(len(one.payload) for one in client.of(DATA))

    assert play(scenario, loop, ONE) == (1 << 15, 1 << 14)


def test_a_client_that_does_not_read_holds_up_nobody_else(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[bool, list[int]]:
        scene.triton.says = lambda request: answer(size=900_000 if len(request) > 500 else 8)
        slow = await scene.client(PREFACE + settings(window=1 << 30) + window(0, 1 << 30))
        await until(slow.ping())
        slow.pause_reading()
        streams = range(1, 41, 2)
        for stream in streams:
            slow.call(stream, infer(size=600))
        quick = await scene.client()
        answered = [await scene.call(quick, stream) for stream in (1, 3, 5)]
        await until(lambda: sum(call.ended for call in scene.triton.calls) == 23)
        was_over = any(slow.streams.get(n, Received()).ended for n in streams)
        slow.resume_reading()
        for late in await scene.over(slow, *streams):
            assert len(late.messages[0]) > 900_000
        return was_over, [one.status for one in answered]

    assert play(scenario, loop, ONE) == (False, [0, 0, 0])


def test_answers_of_many_streams_interleave(loop: str) -> None:
    async def scenario(scene: Scene) -> list[Received]:
        scene.triton.answers = False
        client = await scene.client()
        streams = range(1, 41, 2)
        for stream in streams:
            client.call(stream)
        await until(lambda: len([c for c in scene.triton.calls if c.ended]) == 20)
        whole = message(answer(size=100))
        numbers = sorted(n for n in scene.triton.peer.streams if n)
        for n in numbers:
            scene.triton.head(n)
        for at in range(0, len(whole), 30):
            for n in reversed(numbers):
                scene.triton.data(n, whole[at : at + 30])
        for n in numbers:
            scene.triton.end(n)
        return await scene.over(client, *streams)

    answers = play(scenario, loop, ONE)
    assert [one.messages for one in answers] == [[answer(size=100)]] * 20
