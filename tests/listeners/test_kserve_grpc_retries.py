"""What happens to a call when its replica does not answer as it should."""

import itertools

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    RST_STREAM,
    Client,
    Triton,
    answer,
    frame,
    goaway,
    infer,
    message,
    reset,
)
from listeners.grpc_scene import ONE, TWO, WIDE, Scene, in_scene, send, stage
from loops import on_loops

ABSENT = "Request for unknown model: 'm' is not found"
UNAVAILABLE, NOT_FOUND, INTERNAL = 14, 5, 13
LIMIT = 100  # calls in flight that the scene's gateway admits


async def first_replica(scene: Scene, client: Client, body: bytes | None = None) -> Triton:
    """Send a call. The replica that has got it whole; the test answers for this one."""
    scene.silence()
    for triton in scene.tritons.values():
        triton.greeting = WIDE
    client.open(1)
    send(client, message(infer() if body is None else body))
    return await scene.first_asked()


def tried(scene: Scene) -> int:
    return sum(len(triton.calls) for triton in scene.tritons.values())


@on_loops()
async def test_only_a_refusal_of_tritons_own_goes_to_another_replica() -> None:
    for status, said, size, is_repeated in (
        (NOT_FOUND, ABSENT, 8, True),
        (UNAVAILABLE, "Server not ready", 8, True),
        (UNAVAILABLE, "Server not ready", 300_000, False),  # too large to be kept
        (UNAVAILABLE, "the model says so", 8, False),
        (INTERNAL, "it broke", 8, False),
    ):
        async with stage(TWO) as scene:
            client = await scene.client()
            first = await first_replica(scene, client, infer(size=size))
            first.refuse(1, status, said)
            [received] = await scene.over(client, 1)
            expected = (0, 2) if is_repeated else (status, 1)
            assert (received.status, tried(scene)) == expected, said
            if not is_repeated:
                assert received.trailers["grpc-message"] == said
                assert "servegate-error" not in received.trailers


@on_loops()
async def test_a_call_that_was_provably_not_looked_at_goes_elsewhere() -> None:
    for refusal in (reset(1, 7), goaway(0)):
        async with stage(TWO) as scene:
            client = await scene.client()
            first = await first_replica(scene, client)
            first.peer.send(refusal)
            [received] = await scene.over(client, 1)
            assert received.status == 0, refusal


@in_scene(TWO)
async def test_a_replica_that_cannot_be_reached_is_replaced(scene: Scene) -> None:
    scene.tritons["a"].close()
    client = await scene.client()
    assert [(await scene.call(client, stream)).status for stream in (1, 3, 5)] == [0, 0, 0]
    scene.tritons["b"].close()
    await until(lambda: scene.pool.connections == 0)
    received = await scene.call(client, 7)
    outcome = (received.status, received.trailers["servegate-error"])
    assert outcome == (UNAVAILABLE, "no_replica")


@on_loops()
async def test_a_call_that_may_have_been_executed_is_not_repeated() -> None:
    ways = ("reset", "cancel", "closed", "end without status")
    for how, when in itertools.product(ways, ("before the head", "after the head", "after data")):
        async with stage(TWO) as scene:
            client = await scene.client()
            first = await first_replica(scene, client)
            if when != "before the head" or how == "end without status":
                first.head(1)
            if when == "after data":
                first.data(1, message(answer())[:9])
            if how == "closed":
                first.peer.abort()
            elif how == "end without status":
                first.peer.send(frame(DATA, END_STREAM, 1))
            else:
                first.peer.send(reset(1, 2 if how == "reset" else 8))
            [received] = await scene.over(client, 1)
            outcome = (received.status, received.trailers["servegate-error"], tried(scene))
            assert outcome == (UNAVAILABLE, "outcome_unknown", 1), (how, when)


async def begin_large(scene: Scene, client: Client) -> None:
    """Send so much of a message that the listener does not wait for its end."""
    client.open(1)
    send(client, message(infer(size=600_000))[:300_000], ends=False)
    await until(lambda: bool(scene.triton.calls) and bool(scene.triton.calls[0].body))


@in_scene(ONE)
async def test_an_answer_before_the_whole_request_is_an_answer(scene: Scene) -> None:
    client = await scene.client()
    await begin_large(scene, client)
    scene.triton.refuse(1, 3, "no")
    [received] = await scene.over(client, 1)
    await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))
    assert received.status == 3
    assert client.of(RST_STREAM, 1) or received.ended


# --- clients that leave --------------------------------------------------------------------------


def left(scene: Scene) -> float:
    """How many clients have left, as it was counted."""
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "grpc"}
    return scene.plane.count("servegate_errors_total", error="client_left", **labels)


@pytest.mark.parametrize("cancel", ["absorb", "forward"])
@on_loops()
async def test_triton_hears_of_a_client_that_leaves_only_where_it_survives_it(cancel: str) -> None:
    is_forwarded = cancel == "forward"
    for how in ("reset", "disconnect"):
        async with stage(ONE, cancel=cancel) as scene:
            client = await scene.client()
            await first_replica(scene, client)
            client.send(reset(1)) if how == "reset" else client.abort()
            await until(lambda: left(scene) == 1)
            assert (scene.pool.streams, scene.plane.loads.total) == (0 if is_forwarded else 1, 1)
            if is_forwarded:
                scene.plane.clock.now += 0.9
                scene.plane.gateway.sweep()
                assert scene.plane.loads.total == 1, "Triton may still work on it"
                scene.plane.clock.now += 0.2
                scene.plane.gateway.sweep()
                assert scene.plane.loads.total == 0
                await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))
            else:
                scene.triton.answer(1)
            await scene.quiet()
            assert bool(scene.triton.peer.of(RST_STREAM)) == is_forwarded, how


@in_scene(ONE)
async def test_triton_always_hears_of_a_client_that_leaves_within_its_message(scene: Scene) -> None:
    client = await scene.client()
    await begin_large(scene, client)
    client.send(reset(1))
    await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))
    assert scene.triton.peer.of(RST_STREAM)[0].number == 8


@pytest.mark.parametrize("how", ["its time is over", "its replica has left"])
@in_scene(ONE)
async def test_an_absorbed_call_frees_its_slot_when(scene: Scene, how: str) -> None:
    client = await scene.client()
    await first_replica(scene, client)
    scene.sweep(10.0)
    client.send(reset(1))
    await until(lambda: left(scene) == 1)
    scene.sweep(289.0)
    assert scene.pool.streams == scene.plane.loads.total == 1
    if how == "its time is over":
        scene.sweep(2.0)
        await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))
    else:
        scene.plane.live.swap(snapshot(view(target(1, "b")), generation=2))
        scene.plane.gateway.sweep()
        assert scene.pool.streams == 1, "Triton is not told"
        scene.triton.answer(1)
    assert scene.plane.loads.total == 0


@pytest.mark.parametrize("how", ["deadline", "reset"])
@in_scene(ONE, resets=1000)
async def test_calls_whose_callers_wait_no_longer_count_against_the_limit(
    scene: Scene, how: str
) -> None:
    scene.silence()
    client, numbers = await scene.client(), range(1, 2 * LIMIT, 2)
    for number in numbers:
        client.call(number, metadata=[("grpc-timeout", "1S")])
    await until(lambda: len(scene.triton.calls) == LIMIT)
    if how == "deadline":
        scene.sweep(1.1)
        await scene.over(client, *numbers)
    else:
        client.send(*(reset(number) for number in numbers))
        await until(lambda: left(scene) == LIMIT)
    refused = await scene.call(client, 1001)
    at = [(number, peer) for peer in scene.triton.peers for number in peer.streams if number]
    number, peer = at.pop()
    scene.triton.answer(number, peer=peer)
    await until(lambda: scene.plane.loads.total == LIMIT - 1)
    scene.triton.answers = True
    answered = await scene.call(client, 1003)
    for number, peer in at:
        scene.triton.answer(number, peer=peer)
    assert [refused.status, answered.status] == [8, 0]


@on_loops()
async def test_a_deadline_is_kept_and_passed_on_where_it_may_be() -> None:
    for cancel, passed in (("absorb", None), ("forward", "20000m"), ("forward", "not connected")):
        async with stage(ONE, cancel=cancel) as scene:
            scene.silence()
            if passed == "not connected":
                scene.triton.greeting = b""
            client = await scene.client()
            client.call(1, metadata=[("grpc-timeout", "20S")])
            await until(lambda: bool(scene.triton.peers))
            if passed != "not connected":
                await scene.asked()
            scene.sweep(19.9)
            assert not client.of(DATA)
            scene.sweep(0.2)
            [received] = await scene.over(client, 1)
            outcome = (received.status, received.trailers["servegate-error"])
            assert outcome == (4, "deadline_exceeded"), passed
            if scene.pool.streams:
                scene.triton.answer(1)
            if passed != "not connected":
                assert scene.triton.calls[0].heads[0].get("grpc-timeout") == passed
