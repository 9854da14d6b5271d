"""Clients that leave at every stage, and a server that stops: nothing is left behind."""

import asyncio

import pytest
from builders import snapshot, target, until, view
from listeners.http_messages import HEAD, MIB, chunked, reply, request
from listeners.http_replicas import answering, answers_good
from listeners.http_scene import LIMITS, Scene, in_scene


def left(scene: Scene) -> float:
    """How many clients have left, as it was counted."""
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}
    return scene.count("servegate_errors_total", error="client_left", **labels)


# --- clients that leave ---------------------------------------------------------------------------
@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("size", [600_000, 8 * MIB])
@in_scene()
async def test_a_client_that_leaves_in_the_middle_of_its_body_ends_the_call(
    scene: Scene, size: int, leave: str
) -> None:
    client, _, call = await scene.begin(
        HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size // 2)
    )
    await call.read_some(size // 2)
    getattr(client, leave)()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await call.read()  # Triton hears of it, and nothing is complete there
    assert not call.is_complete
    await until(lambda: scene.is_at_rest)


@pytest.mark.parametrize("leave", ["close", "reset"])
@in_scene()
async def test_a_call_keeps_its_slot_when_its_client_has_left(scene: Scene, leave: str) -> None:
    client, hand, call = await scene.begin(request())
    await call.read()
    getattr(client, leave)()
    await until(lambda: left(scene) == 1)
    assert (scene.plane.loads.models, len(scene.plane.loads.replicas)) == ({"m": 1}, 1)
    call.write(reply(bytes(600_000)))
    hand.done(call)
    await until(lambda: scene.is_at_rest)
    assert (scene.pool.idle, scene.a.open) == (1, 1), "the connection serves the next call"


@in_scene(admitted=2, loops=("uvloop",))
async def test_calls_whose_clients_have_left_count_against_the_limit(scene: Scene) -> None:
    hand, calls = scene.a.by_hand(), []
    for _ in range(2):
        client = await scene.connect()
        await client.send(request())
        calls.append(await (await hand.call()).read())
        client.reset()
    await until(lambda: left(scene) == 2)
    refused = await scene.ask(request())
    assert (refused.status, refused.header("retry-after")) == (429, "1")
    scene.a.script = answers_good
    for call in calls:
        call.write(reply())
        hand.done(call)
        await until(lambda: scene.plane.loads.total < 2)
        assert (await scene.ask(request())).status == 200


@pytest.mark.parametrize("how", ["breaks", "is late", "leaves"])
@in_scene(loops=("uvloop",))
async def test_a_call_without_client_and_answer_gives_its_slot_back_when_its_replica(
    scene: Scene, how: str
) -> None:
    client, _, call = await scene.begin(request())
    await call.read()
    client.reset()
    await until(lambda: left(scene) == 1)
    scene.pass_time(LIMITS.call - 1)
    assert scene.plane.loads.total == 1
    if how == "breaks":
        call.reset()
    elif how == "is late":
        scene.pass_time(2)
    else:
        scene.plane.live.swap(snapshot(view(target(1, "b")), generation=2))
        scene.plane.gateway.sweep()
        assert scene.pool.busy == 1, "Triton is not told"
    await until(lambda: scene.plane.loads.total == 0)
    call.close()
    await until(lambda: scene.is_at_rest)
    assert left(scene) == 1


@pytest.mark.parametrize("size", [100_000, 600_000, 8 * MIB])
@in_scene(send_buffer=1 << 14)
async def test_a_client_that_leaves_in_the_middle_of_its_answer_ends_the_call(
    scene: Scene, size: int
) -> None:
    scene.a.script = answering(reply(bytes(size // 2), length=size))
    client = await scene.connect(limit=1 << 10, receive_buffer=1 << 14)
    await client.send(request())
    await client.head()
    client.reset()
    await until(lambda: scene.is_at_rest)


@in_scene()
async def test_a_client_that_leaves_with_waiting_requests_leaves_nothing(scene: Scene) -> None:
    client, _, call = await scene.begin(request() + request(bytes(1000)) + chunked(b"abc")[:-3])
    assert scene.listener.held > 0
    client.reset()
    await scene.until_swept(lambda: scene.listener.held == 0 and left(scene) == 1)
    call.write(reply())
    await until(lambda: scene.is_at_rest)


@in_scene()
async def test_a_client_that_leaves_during_the_connect_keeps_the_connection(scene: Scene) -> None:
    client = await scene.connect()
    client.writer.write(request())
    await until(lambda: scene.pool.busy == 1)
    client.reset()
    await until(lambda: scene.is_at_rest)
    assert (await scene.ask(request())).status == 200


# --- stopping -------------------------------------------------------------------------------------
@in_scene()
async def test_a_server_that_stops_answers_what_it_has_and_closes(scene: Scene) -> None:
    hand = scene.a.by_hand()
    busy, idle = await scene.connect(), await scene.connect()
    await busy.send(request() + request(b"second"))
    call = await hand.call()
    await until(lambda: len(scene.listener.clients) == 2)
    for client in list(scene.listener.clients):
        client.shutdown()  # type: ignore[attr-defined]
    assert await idle.rest() == b""
    for _ in range(2):
        await call.read()
        call.write(reply(call.body))
        hand.done(call)
        if call.body != b"second":
            call = await hand.call()
    answers = [await busy.answer(), await busy.answer()]
    assert [one.body for one in answers] == [b"{}", b"second"]
    assert answers[1].header("connection") == "close"
    assert await busy.rest() == b""
