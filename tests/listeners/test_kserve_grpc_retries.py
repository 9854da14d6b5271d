"""What happens to a call when its replica does not answer as it should."""

import pytest
from builders import snapshot, target, until, view
from grpc_wire import (
    DATA,
    END_STREAM,
    LOOPS,
    RST_STREAM,
    Client,
    Received,
    Scene,
    Triton,
    answer,
    frame,
    goaway,
    infer,
    message,
    play,
    reset,
)

ONE = snapshot(view(target(1, "a")))
TWO = snapshot(view(target(1, "a", "b")))
ABSENT = "Request for unknown model: 'm' is not found"
BUSY = "[request id: 1] Exceeds maximum queue size"
UNAVAILABLE, NOT_FOUND, INTERNAL = 14, 5, 13
LIMIT = 100  # calls in flight that the scene's gateway admits


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def asked(scene: Scene) -> Triton:
    """The replica that has the call, whole."""
    await until(lambda: any(c.ended for t in scene.tritons.values() for c in t.calls))
    [triton] = [t for t in scene.tritons.values() if any(c.ended for c in t.calls)]
    return triton


@pytest.mark.parametrize(
    ("status", "said", "tried"),
    [
        (NOT_FOUND, ABSENT, 2),
        (UNAVAILABLE, "Server not ready", 2),
        (UNAVAILABLE, ABSENT, 2),
        (UNAVAILABLE, "the model says so", 1),
        (INTERNAL, "it broke", 1),
    ],
)
def test_only_a_refusal_of_tritons_own_goes_to_another_replica(
    loop: str, status: int, said: str, tried: int
) -> None:
    async def scenario(scene: Scene) -> tuple[int, int]:
        for triton in scene.tritons.values():
            triton.answers = False
        client = await scene.client()
        client.call(1)
        first = await asked(scene)
        for triton in scene.tritons.values():
            triton.answers = triton is not first
        first.refuse(1, status, said)
        [received] = await scene.over(client, 1)
        return received.status, sum(len(t.calls) for t in scene.tritons.values())

    assert play(scenario, loop, TWO) == (0 if tried == 2 else status, tried)


def test_the_refusal_of_the_last_replica_is_the_answer(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        await asked(scene)
        scene.triton.refuse(1, UNAVAILABLE, BUSY)
        [received] = await scene.over(client, 1)
        return received

    received = play(scenario, loop, ONE)
    assert (received.status, received.trailers["grpc-message"]) == (UNAVAILABLE, BUSY)
    assert "servegate-error" not in received.trailers


def test_a_request_that_is_too_large_to_be_kept_is_not_repeated(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        for triton in scene.tritons.values():
            triton.answers = False
        client = await scene.client()
        client.open(1)
        whole = message(infer(size=300_000))
        for at in range(0, len(whole), 1 << 14):
            piece = whole[at : at + (1 << 14)]
            client.send(frame(DATA, END_STREAM * (at + (1 << 14) >= len(whole)), 1, piece))
        await until(lambda: any(t.calls for t in scene.tritons.values()))
        [first] = [t for t in scene.tritons.values() if t.calls]
        first.refuse(1, UNAVAILABLE, BUSY)
        [received] = await scene.over(client, 1)
        return received.status

    assert play(scenario, loop, TWO) == UNAVAILABLE


@pytest.mark.parametrize("how", ["refused stream", "goaway", "goaway after the head"])
def test_a_call_that_was_provably_not_looked_at_goes_elsewhere(loop: str, how: str) -> None:
    async def scenario(scene: Scene) -> int:
        for triton in scene.tritons.values():
            triton.answers = False
        client = await scene.client()
        client.call(1)
        first = await asked(scene)
        for triton in scene.tritons.values():
            triton.answers = triton is not first
        first.peer.send(reset(1, 7) if how == "refused stream" else goaway(0))
        [received] = await scene.over(client, 1)
        return received.status

    assert play(scenario, loop, TWO) == 0


@pytest.mark.parametrize("how", ["reset", "cancel", "closed", "end without status"])
@pytest.mark.parametrize("when", ["before the head", "behind the head", "behind data"])
def test_a_call_that_may_have_been_executed_is_not_repeated(loop: str, how: str, when: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, int]:
        for triton in scene.tritons.values():
            triton.answers = False
        client = await scene.client()
        client.call(1)
        first = await asked(scene)
        if when != "before the head" or how == "end without status":
            first.head(1)
        if when == "behind data":
            first.data(1, message(answer())[:9])
        if how == "closed":
            first.peer.abort()
        elif how == "end without status":
            first.peer.send(frame(DATA, END_STREAM, 1))
        else:
            first.peer.send(reset(1, 2 if how == "reset" else 8))
        [received] = await scene.over(client, 1)
        return received, sum(len(t.calls) for t in scene.tritons.values())

    received, tried = play(scenario, loop, TWO)
    assert received.status == UNAVAILABLE
    assert received.trailers["servegate-error"] == "outcome_unknown"
    assert tried == 1


def test_a_replica_that_cannot_be_reached_is_replaced(loop: str) -> None:
    async def scenario(scene: Scene) -> list[int]:
        gone = scene.tritons["a"]
        gone.close()
        client = await scene.client()
        return [(await scene.call(client, stream)).status for stream in (1, 3, 5)]

    assert play(scenario, loop, TWO) == [0, 0, 0]


def test_without_a_replica_that_can_be_reached_there_is_no_answer(loop: str) -> None:
    async def scenario(scene: Scene) -> Received:
        scene.triton.close()
        return await scene.call(await scene.client(), 1)

    received = play(scenario, loop, ONE)
    assert (received.status, received.trailers["servegate-error"]) == (UNAVAILABLE, "no_replica")


async def begin_large(scene: Scene, client: Client) -> None:
    """So much of a message that it does not wait for its end."""
    whole = message(infer(size=600_000))
    for at in range(0, 300_000, 50_000):
        client.send(frame(DATA, 0, 1, whole[at : at + 50_000]))
    await until(lambda: bool(scene.triton.calls) and bool(scene.triton.calls[0].body))


def test_an_answer_before_the_whole_request_is_an_answer(loop: str) -> None:
    async def scenario(scene: Scene) -> tuple[Received, bool]:
        client = await scene.client()
        client.open(1)
        await begin_large(scene, client)
        scene.triton.refuse(1, 3, "no")
        [received] = await scene.over(client, 1)
        await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))
        return received, bool(client.of(RST_STREAM, 1))

    received, was_reset = play(scenario, loop, ONE)
    assert received.status == 3
    assert was_reset or received.ended


# --- clients that leave --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reset", "disconnect"])
@pytest.mark.parametrize(("cancel", "is_told"), [("absorb", False), ("forward", True)])
def test_a_client_that_leaves_is_told_to_triton_only_where_it_survives_it(
    loop: str, how: str, cancel: str, is_told: bool
) -> None:
    async def scenario(scene: Scene) -> bool:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        await asked(scene)
        client.send(reset(1)) if how == "reset" else client.abort()
        await until(lambda: left(scene) == 1)
        assert (scene.pool.streams, scene.plane.loads.total) == (0 if is_told else 1, 1)
        if is_told:
            scene.plane.clock.now += 0.9
            scene.plane.gateway.sweep()
            assert scene.plane.loads.total == 1, "Triton may work on it, and does not tell"
            scene.plane.clock.now += 0.2
            scene.plane.gateway.sweep()
            assert scene.plane.loads.total == 0
            await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))
        else:
            scene.triton.answer(1)
        await scene.quiet()
        return bool(scene.triton.peer.of(RST_STREAM))

    assert play(scenario, loop, ONE, cancel=cancel) == is_told


def test_a_client_that_leaves_within_its_message_is_always_told(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        client = await scene.client()
        client.open(1)
        await begin_large(scene, client)
        client.send(reset(1))
        await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))
        return scene.triton.peer.of(RST_STREAM)[0].number

    assert play(scenario, loop, ONE) == 8


def test_an_absorbed_call_is_given_up_after_the_longest_time_of_a_call(loop: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        await asked(scene)
        scene.sweep(10.0)
        client.send(reset(1))
        await until(lambda: left(scene) == 1)
        scene.sweep(289.0)
        assert scene.pool.streams == scene.plane.loads.total == 1
        scene.sweep(2.0)
        assert scene.plane.loads.total == 0
        await until(lambda: bool(scene.triton.peer.of(RST_STREAM)))

    play(scenario, loop, ONE)


@pytest.mark.parametrize("how", ["deadline", "reset"])
def test_calls_whose_callers_wait_no_longer_count_against_the_limit(loop: str, how: str) -> None:
    async def scenario(scene: Scene) -> list[int | None]:
        scene.triton.answers = False
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
        return [refused.status, answered.status]

    assert play(scenario, loop, ONE, resets=1000) == [8, 0]


def test_a_slot_is_free_once_its_replica_is_not_called_any_more(loop: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1)
        await asked(scene)
        client.send(reset(1))
        await until(lambda: left(scene) == 1)
        scene.plane.live.swap(snapshot(view(target(1, "b")), generation=2))
        scene.plane.gateway.sweep()
        assert (scene.plane.loads.total, scene.pool.streams) == (0, 1)
        scene.triton.answer(1)

    play(scenario, loop, ONE)


def left(scene: Scene) -> float:
    """How many clients have left, as it was counted."""
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "grpc"}
    return scene.plane.count("servegate_errors_total", error="client_left", **labels)


@pytest.mark.parametrize(("cancel", "passed"), [("absorb", None), ("forward", "20000m")])
def test_a_deadline_is_kept_and_passed_on_where_it_may_be(
    loop: str, cancel: str, passed: str | None
) -> None:
    async def scenario(scene: Scene) -> tuple[Received, str | None]:
        scene.triton.answers = False
        client = await scene.client()
        client.call(1, metadata=[("grpc-timeout", "20S")])
        await asked(scene)
        scene.sweep(19.9)
        assert not client.of(DATA)
        scene.sweep(0.2)
        [received] = await scene.over(client, 1)
        if scene.pool.streams:
            scene.triton.answer(1)
        return received, scene.triton.calls[0].heads[0].get("grpc-timeout")

    received, told = play(scenario, loop, ONE, cancel=cancel)
    assert (received.status, received.trailers["servegate-error"]) == (4, "deadline_exceeded")
    assert told == passed


def test_a_deadline_that_passes_while_connecting_ends_the_call(loop: str) -> None:
    async def scenario(scene: Scene) -> int:
        scene.triton.greeting = b""
        client = await scene.client()
        client.call(1, metadata=[("grpc-timeout", "1S")])
        await until(lambda: bool(scene.triton.peers))
        scene.sweep(1.1)
        [received] = await scene.over(client, 1)
        return received.status

    assert play(scenario, loop, ONE) == 4
