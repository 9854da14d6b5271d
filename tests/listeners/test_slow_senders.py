"""Senders that are slow or send nothing take no slot, and keep no other caller from a model."""

import pytest
from builders import snapshot, target, until, view
from grpc_wire import DATA, END_STREAM, STREAM, Received, frame, infer, message, play
from grpc_wire import Client as GrpcClient
from grpc_wire import Scene as GrpcScene
from listeners.grpc_waking_scene import WIDE
from listeners.http_messages import INFER, reply, request
from listeners.http_scene import Scene as HttpScene
from listeners.http_scene import in_scene

from serve.core.errors import TooManyIncomplete
from serve.core.limits import FIRST
from serve.listeners.incomplete import Incomplete
from serve.triton.http_connection import HIGH_WATER

KEPT = HIGH_WATER
ONE = snapshot(view(target(1, "a")))
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n".encode()
MEBIBYTE = b"Content-Length: 1048576\r\n\r\n"


# --- HTTP: when a slot is taken -------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun",
    [
        b"Content-Length: 1000\r\n\r\n" + bytes(999),
        MEBIBYTE,
        MEBIBYTE + bytes(FIRST - 1),
        b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % 1000 + bytes(1000),
        b"Expect: 100-continue\r\n" + MEBIBYTE,
    ],
    ids=["small", "no body", "large", "chunked", "expects"],
)
@in_scene(loops=("uvloop",), admitted=1)
async def test_a_body_that_has_not_come_holds_no_slot(scene: HttpScene, begun: bytes) -> None:
    for _ in range(3):
        slow = await scene.connect()
        await slow.send(HEAD + begun)
    await scene.until_read()
    assert scene.plane.loads.total == 0
    assert (await scene.ask(request(b"{}"))).status == 200


@in_scene(loops=("uvloop",))
async def test_a_large_body_is_sent_on_before_it_is_complete(scene: HttpScene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(HEAD + MEBIBYTE + bytes(KEPT))
    call = await hand.call()
    assert scene.plane.loads.total == 1
    await client.send(bytes((1 << 20) - KEPT))
    await call.read()
    call.write(reply())
    hand.done(call)
    assert (await client.answer()).status == 200


@in_scene(loops=("uvloop",))
async def test_a_call_is_as_old_as_its_head(scene: HttpScene) -> None:
    client = await scene.connect()
    await client.send(HEAD + b"Content-Length: 4\r\n\r\nab")
    await scene.until_read()
    scene.pass_time(3.0)
    await client.send(b"cd")
    assert (await client.answer()).status == 200
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}
    assert scene.count("servegate_call_seconds_sum", **labels) >= 3.0


@pytest.mark.parametrize("path", ["/v2/models/none/infer", "/v2/models/m/versions/9/infer"])
@in_scene(loops=("uvloop",))
async def test_what_is_refused_is_refused_before_its_body_comes(
    scene: HttpScene, path: str
) -> None:
    client = await scene.connect()
    await client.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode() + MEBIBYTE)
    assert (await client.answer()).status == 404


@in_scene(loops=("uvloop",), limits={"body_idle": 30.0, "body_rate": 8192.0})
async def test_a_body_that_holds_a_slot_and_stops_moving_frees_it_soon(scene: HttpScene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(HEAD + MEBIBYTE + bytes(KEPT))
    call = await hand.call()
    scene.pass_time(0.1)
    scene.pass_time(4.0)
    assert scene.plane.loads.total == 1
    scene.pass_time(2.0)
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "too_slow")
    assert scene.plane.loads.total == 0
    hand.done(call)


@in_scene(loops=("uvloop",), limits={"body_idle": 30.0})
async def test_a_call_that_ends_before_its_body_has_come_is_counted(scene: HttpScene) -> None:
    slow, gone = await scene.connect(), await scene.connect()
    for client in (slow, gone):
        await client.send(HEAD + MEBIBYTE + bytes(10))
    await scene.until_read()
    gone.reset()
    await until(lambda: len(scene.listener.clients) == 1)
    scene.pass_time(0.1)
    scene.pass_time(31.0)
    assert (await slow.answer()).status == 408
    labels = {"model": "", "version": "", "route": "", "protocol": "http"}
    counts = [
        scene.count("servegate_errors_total", error=error, **labels)
        for error in ("client_left", "too_slow")
    ]
    assert counts == [1, 1]


# --- how many -------------------------------------------------------------------------------------


@in_scene(loops=("uvloop",), limits={"incomplete": 2})
async def test_an_address_may_have_so_many_incomplete_calls(scene: HttpScene) -> None:
    first = [await scene.connect() for _ in range(2)]
    for client in first:
        await client.send(HEAD + MEBIBYTE)
    await scene.until_read()
    scene.pass_time(0.1)
    late = await scene.connect()
    await late.send(HEAD + MEBIBYTE)
    await scene.until_read()
    scene.pass_time(0.1)
    answer = await late.answer()
    assert (answer.status, answer.code) == (429, "too_many_incomplete")
    assert answer.header("retry-after") == "1"
    assert (await scene.ask(request(b"{}"))).status == 200
    for client in first:  # those that came first may go on
        await client.send(bytes(1 << 20))
        assert (await client.answer()).status == 200


def test_keys_are_counted_wherever_they_come_from() -> None:
    calls = Incomplete(2)
    calls.count("10.0.0.1:5", b"key", is_new=True)
    calls.count("10.0.0.2:5", b"key", is_new=True)
    with pytest.raises(TooManyIncomplete, match="this key already has 2"):
        calls.count("10.0.0.3:5", b"key", is_new=True)
    calls.count("10.0.0.3:5", b"another", is_new=True)


def test_calls_that_are_known_stay_and_places_of_those_that_ended_are_free() -> None:
    calls = Incomplete(2)
    for port in (1, 2):
        calls.count(f"[::1]:{port}", b"", is_new=True)
    calls.turn()
    calls.count("[::1]:1", b"", is_new=False)
    with pytest.raises(TooManyIncomplete, match="this address already has 2"):
        calls.count("[::1]:3", b"", is_new=True)
    calls.turn()
    calls.count("[::1]:1", b"", is_new=False)
    calls.count("[::1]:4", b"", is_new=True)


# --- gRPC -----------------------------------------------------------------------------------------


def send(client: GrpcClient, stream: int, data: bytes, end: int = 0) -> None:
    """Bytes of a message, in frames that do not end the stream but for the last one."""
    for at in range(0, len(data), 50_000):
        is_last = at + 50_000 >= len(data)
        client.send(frame(DATA, end if is_last else 0, stream, data[at : at + 50_000]))


SIZES = [(1000, 500), (200_000, 150_000), (1_000_000, 50_000)]


@pytest.mark.parametrize("method", ["unary", "stream"])
@pytest.mark.parametrize(("size", "begun"), SIZES)
def test_a_message_that_has_not_come_holds_no_slot(method: str, size: int, begun: int) -> None:
    async def scenario(scene: GrpcScene) -> int:
        scene.triton.answers = False
        client, whole = await scene.client(), message(infer(size=size))
        if method == "stream":
            client.open(1, STREAM)
        else:
            client.open(1)
        send(client, 1, whole[:begun])
        await until(client.ping())
        await until(lambda: scene.pool.board.held >= begun - 5)  # the prefix is no part of it
        before = scene.plane.loads.total
        send(client, 1, whole[begun:], END_STREAM)
        await until(lambda: scene.plane.loads.total == 1)
        return before

    assert play(scenario, "uvloop", ONE, is_quiet=False) == 0


def test_a_message_arrives_whole_whatever_its_pieces() -> None:
    async def scenario(scene: GrpcScene) -> list[bool]:
        scene.triton.greeting = WIDE
        client, found = await scene.client(), []
        for number, size in enumerate((100, 20_000, 40_000, 300_000)):
            stream, body = 2 * number + 1, infer(size=size)
            client.open(stream)
            whole = message(body)
            for at in range(0, len(whole), 7_001):
                end = END_STREAM if at + 7_001 >= len(whole) else 0
                client.send(frame(DATA, end, stream, whole[at : at + 7_001]))
                await until(client.ping())
            await scene.over(client, stream)
            [sent] = scene.triton.calls[-1].messages
            found.append(sent.startswith(body))
        return found

    assert play(scenario, "uvloop", ONE, pings=10_000) == [True] * 4


def test_a_message_that_holds_a_slot_and_stops_moving_frees_it_soon() -> None:
    async def scenario(scene: GrpcScene) -> tuple[int, int, Received]:
        client = await scene.client()
        client.open(1)
        send(client, 1, message(infer(size=1_000_000))[:300_000])
        await until(lambda: scene.plane.loads.total == 1)
        scene.sweep()
        scene.sweep(4.0)
        before = scene.plane.loads.total
        scene.sweep(2.0)
        [received] = await scene.over(client, 1)
        return before, scene.plane.loads.total, received

    before, after, received = play(scenario, "uvloop", ONE)
    assert (before, after) == (1, 0)
    assert received.trailers["servegate-error"] == "too_slow"


def test_an_address_may_have_so_many_incomplete_messages() -> None:
    async def scenario(scene: GrpcScene) -> tuple[Received, list[int], list[Received]]:
        client, whole = await scene.client(), message(infer())
        for stream in (1, 3):
            client.open(stream)
            send(client, stream, whole[:30])
        await until(client.ping())
        scene.sweep()
        client.open(5)
        send(client, 5, whole[:30])
        await until(client.ping())
        scene.sweep()
        [refused] = await scene.over(client, 5)
        other = await scene.call(client, 7)
        for stream in (1, 3):
            send(client, stream, whole[30:], END_STREAM)
        return refused, [other.status], await scene.over(client, 1, 3)

    refused, statuses, first = play(scenario, "uvloop", ONE, incomplete=2)
    assert (refused.status, refused.trailers["servegate-error"]) == (8, "too_many_incomplete")
    assert statuses + [one.status for one in first] == [0, 0, 0]


def test_an_unknown_model_is_refused_before_its_message_has_come() -> None:
    async def scenario(scene: GrpcScene) -> Received:
        client = await scene.client()
        client.open(1)
        send(client, 1, message(infer("none", size=100_000))[:50_000])
        [received] = await scene.over(client, 1)
        return received

    assert play(scenario, "uvloop", ONE).status == 5
