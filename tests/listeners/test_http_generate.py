"""generate and generate_stream: flat JSON there, and JSON or events back, each as it comes."""

import json

import pytest
from builders import snapshot, target, until, view
from listeners.http_clients import Client
from listeners.http_messages import INFER, chunk, request
from listeners.http_replicas import answering, answers_good, breaking_off
from listeners.http_scene import Scene, in_scene

GENERATE, STREAM = "/v2/models/m/generate", "/v2/models/m/generate_stream"
ASKED = b'{"text_input":"x","text_input":"y"}'  # a key twice is Triton's business
EVENTS = b"Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
PHYSICAL = "m--0a1b2c3d"
RENAMED = snapshot(view(target(1, "a", physical=PHYSICAL)))
LABELLED = snapshot(view(target(1, "a"), target(2, "a"), labels={"stable": 1}, split="1=100"))
SEQUENCES = snapshot(view(target(1, "a", "b", "c"), sequences=True))


def event(number: int, name: str = "m") -> bytes:
    return b'data: {"model_name":"%b","model_version":"1","n":%d}\n\n' % (name.encode(), number)


async def next_chunk(client: Client) -> bytes:
    """One chunk of an answer, as soon as it has come."""
    size = int(await client.reader.readuntil(b"\r\n"), 16)
    data = await client.reader.readexactly(size)
    assert await client.reader.readexactly(2) == b"\r\n"
    return data


@in_scene(LABELLED)
async def test_triton_gets_each_verb_with_the_version_that_was_chosen(scene: Scene) -> None:
    model = "/v2/models/m"
    for path, wanted in (
        (GENERATE, f"{model}/versions/1/generate"),
        (STREAM, f"{model}/versions/1/generate_stream"),
        (f"{model}/versions/2/generate", f"{model}/versions/2/generate"),
        (f"{model}/versions/stable/generate_stream", f"{model}/versions/1/generate_stream"),
        (INFER, f"{model}/versions/1/infer"),
    ):
        client = await scene.connect()
        for _ in range(3):
            assert (await client.ask(request(ASKED, path=path))).status == 200
            call = scene.a.requests[-1]
            assert (call.path, call.body) == (wanted, ASKED)


@in_scene()
async def test_an_event_goes_on_before_the_next_one_has_come(scene: Scene) -> None:
    client, hand, call = await scene.begin(request(ASKED, path=STREAM))
    await call.read()
    call.write(b"HTTP/1.1 200 OK\r\n" + EVENTS)
    answer = await client.head()
    assert answer.header("content-type") == "text/event-stream; charset=utf-8"
    assert answer.header("transfer-encoding") == "chunked"
    for number in range(5):
        call.write(chunk(event(number)))
        assert await next_chunk(client) == event(number)
    call.write(b"0\r\n\r\n")
    assert await next_chunk(client) == b""
    hand.done(call)
    await until(lambda: scene.is_at_rest)
    assert scene.log.last.answered == sum(len(event(number)) for number in range(5))
    scene.a.script = answers_good
    assert (await client.ask(request())).status == 200


@pytest.mark.parametrize("leave", ["close", "reset"])
@in_scene()
async def test_a_client_that_leaves_its_stream_ends_it_at_triton(scene: Scene, leave: str) -> None:
    client, hand, call = await scene.begin(request(ASKED, path=STREAM))
    await call.read()
    call.write(b"HTTP/1.1 200 OK\r\n" + EVENTS + chunk(event(0)))
    await client.head()
    await next_chunk(client)
    getattr(client, leave)()
    await until(lambda: scene.is_at_rest)
    await until(lambda: call._peer.reader.at_eof() or call._peer.reader.exception() is not None)
    assert scene.log.lines[-1][1] == "client_left"
    hand.done_all()


@in_scene(2)
async def test_a_stream_that_breaks_is_broken_for_its_client_and_not_retried(scene: Scene) -> None:
    begun = b"HTTP/1.1 200 OK\r\n" + EVENTS + chunk(event(0))
    scene.a.script = scene.b.script = breaking_off(begun)
    client = await scene.connect()
    await client.send(request(ASKED, path=STREAM))
    assert b"0\r\n\r\n" not in await client.rest()
    assert len(scene.a.requests) + len(scene.b.requests) == 1


@in_scene(SEQUENCES)
async def test_a_sequence_stays_on_one_replica_over_every_verb(scene: Scene) -> None:
    parameters = {"parameters": {"sequence_id": 7}}
    infer = json.dumps({"inputs": [], **parameters}).encode()
    assert (await scene.ask(request(infer))).status == 200
    for keys in ({"sequence_id": 7}, parameters):
        body = json.dumps({"text_input": "x", **keys}).encode()
        for path in (GENERATE, STREAM) * 3:
            assert (await scene.ask(request(body, path=path))).status == 200
    assert sorted(len(one.requests) for one in scene.replicas) == [0, 0, 13]


# --- names are restored ---------------------------------------------------------------------------


@in_scene(RENAMED)
async def test_a_generated_answer_says_the_models_own_name(scene: Scene) -> None:
    theirs = b'{"id":"7","model_name":"%b","model_version":"1","text":"x"}' % PHYSICAL.encode()
    scene.a.script = answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(theirs) + b"0\r\n\r\n"
    )
    answer = await scene.ask(request(ASKED, path=GENERATE))
    assert answer.body == b'{"id":"7","model_name":"m","model_version":"1","text":"x"}'
    assert scene.a.requests[0].path == f"/v2/models/{PHYSICAL}/versions/1/generate"


@in_scene(RENAMED)
async def test_each_event_says_the_models_own_name_as_soon_as_it_has_come(scene: Scene) -> None:
    client, hand, call = await scene.begin(request(ASKED, path=STREAM))
    await call.read()
    call.write(b"HTTP/1.1 200 OK\r\n" + EVENTS)
    assert (await client.head()).status == 200
    for number in range(3):
        call.write(chunk(event(number, PHYSICAL)))
        assert await next_chunk(client) == event(number)
    call.write(chunk(f'data: {{"error":"model \'{PHYSICAL}\' failed"}}\n\n'.encode()))
    assert await next_chunk(client) == b'data: {"error":"model \'m\' failed"}\n\n'
    call.write(b"0\r\n\r\n")
    assert await next_chunk(client) == b""
    hand.done(call)
