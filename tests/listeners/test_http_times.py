"""How long a client, a call and a connection may take, and how little a slow sender holds."""

import asyncio

import pytest
from builders import until
from listeners.http_messages import CHUNKED, MIB, chunk, reply, request
from listeners.http_messages import HEAD as POST
from listeners.http_replicas import answering, answers_good
from listeners.http_scene import Scene, in_scene

from serve.core.errors import TooManyIncomplete
from serve.core.limits import FIRST
from serve.listeners.incomplete import Incomplete
from serve.triton.http_connection import HIGH_WATER

TIMES = {
    "call": 30.0, "head_time": 5.0, "body_idle": 5.0, "body_rate": 100.0, "idle": 20.0,
}  # fmt: skip


@in_scene(limits=TIMES)
async def test_a_head_has_to_come_in_time_however_it_dribbles(scene: Scene) -> None:
    client = await scene.connect()
    await client.ask(request())
    for byte in POST[:5]:
        await client.send(bytes([byte]))
        await scene.until_read()
        scene.pass_time(0.9)
    assert len(scene.listener.clients) == 1
    await client.send(b"x")
    await scene.until_read()
    scene.pass_time(0.6)
    assert await client.refusal() == (408, "too_slow")


@in_scene(limits=TIMES)
async def test_a_head_that_is_owed_is_not_counted_while_an_answer_is(scene: Scene) -> None:
    client, hand, call = await scene.begin(request() + POST[:10])
    scene.pass_time(20)
    await call.read()
    call.write(reply())
    assert (await client.answer()).status == 200
    scene.pass_time(4)
    assert len(scene.listener.clients) == 1
    scene.pass_time(2)
    assert await client.refusal() == (408, "too_slow")
    hand.done(call)


@pytest.mark.parametrize("head", [POST + b"Content-Length: 3000000\r\n\r\n", CHUNKED])
@pytest.mark.parametrize("sizes", [(0,), (1000, 0), (600, 600, 400)])
@in_scene(limits=TIMES)
async def test_a_body_that_stops_or_dribbles_is_given_up_and_one_that_flows_is_not(
    scene: Scene, head: bytes, sizes: tuple[int, ...]
) -> None:
    client = await scene.connect()
    await client.send(head)
    await until(lambda: bool(scene.listener.clients))
    await scene.until_read()
    scene.pass_time(0)
    for size in sizes:
        assert scene.log.lines == []
        if size:
            await client.send(bytes(size) if head != CHUNKED else chunk(bytes(size)))
            await scene.until_read()
        scene.pass_time(4.9)
        assert scene.log.lines == []
        scene.pass_time(0.2)
    assert await client.refusal() == (408, "too_slow")
    assert scene.a.requests == []


@in_scene(limits={**TIMES, "call": 1000.0})
async def test_a_client_whose_replica_does_not_read_is_not_blamed(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    sending = asyncio.ensure_future(client.send(request(bytes(24 * MIB))))
    call = await hand.call()
    await until(lambda: any(one.is_request_paused for one in scene.listener.clients))
    for _ in range(20):
        await scene.until_read()
        scene.pass_time(4)
    assert scene.plane.loads.total == 1
    await hand.answer(call)
    await sending
    assert (await client.answer()).status == 200


@in_scene(limits=TIMES)
async def test_a_body_that_a_sequence_model_waits_for_is_watched_too(scene: Scene) -> None:
    view = scene.plane.live.snapshot.models["m"]
    object.__setattr__(view, "sequences", True)
    client = await scene.connect()
    await client.send(POST + b"Content-Length: 3000\r\n\r\n{")
    await until(lambda: scene.listener.held == 1)
    scene.pass_time(0)
    scene.pass_time(6)
    assert await client.refusal() == (408, "too_slow")
    assert scene.a.requests == []


@in_scene(limits=TIMES)
async def test_an_idle_connection_is_closed(scene: Scene) -> None:
    new, used, owing = [await scene.connect() for _ in range(3)]
    await until(lambda: len(scene.listener.clients) == 3)
    await used.ask(request())
    await owing.ask(request(b"", path="/v2/nothing", length=1000))  # the application got no body
    scene.pass_time(20)
    assert len(scene.listener.clients) == 3
    scene.pass_time(0.1)
    assert [await client.rest() for client in (new, used, owing)] == [b"", b"", b""]


@in_scene(limits=TIMES)
async def test_a_call_that_takes_too_long_is_given_up_at_the_replica_too(scene: Scene) -> None:
    client = await scene.connect()
    client.writer.write(request())
    await until(lambda: scene.pool.busy == 1)
    scene.pass_time(31)  # while the replica is being connected
    assert (await client.answer()).status == 504
    client, hand, call = await scene.begin(request())
    await call.read()
    scene.pass_time(29.9)
    assert scene.plane.loads.total == 1
    scene.pass_time(0.2)
    answer = await client.answer()
    assert (answer.status, answer.code) == (504, "deadline_exceeded")
    await until(lambda: call._peer.reader.at_eof() or call._peer.reader.exception() is not None)
    hand.done(call)
    scene.a.script = answers_good
    assert (await client.ask(request())).status == 200  # it had asked for all it wanted


@pytest.mark.parametrize("size", [600_000, 8 * MIB])
@pytest.mark.parametrize("sent", [0.1, 0.5])
@in_scene(limits={**TIMES, "body_idle": 1000.0})
async def test_the_deadline_holds_while_the_body_comes(
    scene: Scene, size: int, sent: float
) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    first = int(size * sent)
    await client.send(POST + b"Content-Length: %d\r\n\r\n" % size + bytes(first))
    await until(lambda: bool(scene.listener.clients))
    await scene.until_read()
    if first > HIGH_WATER:
        await (await hand.call()).read_some(first)
    scene.pass_time(31)
    assert await client.refusal() == (504, "deadline_exceeded")
    hand.done_all()


@pytest.mark.parametrize("size", [100_000, 600_000, 8 * MIB])
@in_scene(limits=TIMES, send_buffer=1 << 14)
async def test_a_client_that_stops_reading_is_broken_off_in_the_end(
    scene: Scene, size: int
) -> None:
    scene.a.script = answering(reply(bytes(size)))
    client = await scene.connect(limit=1 << 10, receive_buffer=1 << 14)
    await client.send(request())
    await client.head()
    for _ in range(60):
        scene.pass_time(1)
        await scene.until_read()
    assert not scene.listener.clients
    assert len(await client.rest()) < size


@pytest.mark.parametrize("closes", [True, False])
@in_scene(limits=TIMES)
async def test_a_refused_client_may_go_on_for_a_moment_and_so_much_only(
    scene: Scene, closes: bool
) -> None:
    client = await scene.connect()
    await client.send(request(b"", "Content-Length: 7"))
    assert (await client.answer()).status == 400
    await client.send(bytes(100_000))
    await scene.until_read()
    assert len(scene.listener.clients) == 1
    if closes:
        client.close()
    else:
        scene.pass_time(2.1)
    await until(lambda: not scene.listener.clients)
    other = await scene.connect()
    await other.send(b"nonsense\r\n\r\n")
    await other.answer()
    with pytest.raises(ConnectionError):
        for _ in range(40):
            await other.send(bytes(MIB))


# --- slow senders take no slot, and keep no other caller from a model ----------------------------

MEBIBYTE = b"Content-Length: 1048576\r\n\r\n"
BEGUN: dict[str, bytes] = {
    "small": b"Content-Length: 1000\r\n\r\n" + bytes(999),
    "no body": MEBIBYTE,
    "large": MEBIBYTE + bytes(FIRST - 1),
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % 1000 + bytes(1000),
    "expects": b"Expect: 100-continue\r\n" + MEBIBYTE,
}


@in_scene(admitted=1)
async def test_a_body_that_has_not_come_holds_no_slot(scene: Scene) -> None:
    for case, begun in BEGUN.items():
        for _ in range(3):
            slow = await scene.connect()
            await slow.send(POST + begun)
        await scene.until_read()
        assert scene.plane.loads.total == 0, case
        assert (await scene.ask(request(b"{}"))).status == 200, case


@in_scene()
async def test_a_call_is_as_old_as_its_head(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(POST + b"Content-Length: 4\r\n\r\nab")
    await scene.until_read()
    scene.pass_time(3.0)
    await client.send(b"cd")
    assert (await client.answer()).status == 200
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}
    assert scene.count("servegate_call_seconds_sum", **labels) >= 3.0


@in_scene()
async def test_what_is_refused_is_refused_before_its_body_comes(scene: Scene) -> None:
    for path in ("/v2/models/none/infer", "/v2/models/m/versions/9/infer"):
        client = await scene.connect()
        await client.send(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode() + MEBIBYTE)
        assert (await client.answer()).status == 404, path


@in_scene(limits={"body_idle": 30.0, "body_rate": 8192.0})
async def test_a_body_that_holds_a_slot_and_stops_moving_frees_it_soon(scene: Scene) -> None:
    client, hand, call = await scene.begin(POST + MEBIBYTE + bytes(HIGH_WATER))
    scene.pass_time(0.1)
    scene.pass_time(4.0)
    assert scene.plane.loads.total == 1
    scene.pass_time(2.0)
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "too_slow")
    assert scene.plane.loads.total == 0
    hand.done(call)


@in_scene(limits={"body_idle": 30.0})
async def test_a_call_that_ends_before_its_body_has_come_is_counted(scene: Scene) -> None:
    slow, gone = await scene.connect(), await scene.connect()
    for client in (slow, gone):
        await client.send(POST + MEBIBYTE + bytes(10))
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


@in_scene(limits={"incomplete": 2})
async def test_an_address_may_have_so_many_incomplete_calls(scene: Scene) -> None:
    first = [await scene.connect() for _ in range(2)]
    for client in first:
        await client.send(POST + MEBIBYTE)
    await scene.until_read()
    scene.pass_time(0.1)
    late = await scene.connect()
    await late.send(POST + MEBIBYTE)
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
