"""generate and generate_stream: flat JSON there, and JSON or events back, each as it comes."""

import json

import pytest
from builders import snapshot, target, until, view
from listeners.http_clients import Client
from listeners.http_messages import INFER, chunk, reply, request
from listeners.http_replicas import Received, answering, answers_good
from listeners.http_scene import Scene, in_scene

from serve.wire.restoring import SEARCHED

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


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (GENERATE, "/v2/models/m/versions/1/generate"),
        (STREAM, "/v2/models/m/versions/1/generate_stream"),
        ("/v2/models/m/versions/2/generate", "/v2/models/m/versions/2/generate"),
        ("/v2/models/m/versions/stable/generate_stream", "/v2/models/m/versions/1/generate_stream"),
        (INFER, "/v2/models/m/versions/1/infer"),
    ],
)
@in_scene(LABELLED)
async def test_each_verb_is_asked_of_triton_with_the_version_that_was_chosen(
    scene: Scene, path: str, wanted: str
) -> None:
    client = await scene.connect()
    for _ in range(3):
        assert (await client.ask(request(ASKED, path=path))).status == 200
    assert {call.path for call in scene.a.requests} == {wanted}
    assert {call.body for call in scene.a.requests} == {ASKED}


@in_scene()
async def test_an_event_goes_on_before_the_next_one_has_come(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request(ASKED, path=STREAM))
    call = await hand.call()
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
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request(ASKED, path=STREAM))
    call = await hand.call()
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
async def test_a_stream_that_breaks_is_broken_for_its_client_and_not_asked_again(
    scene: Scene,
) -> None:
    async def script(call: Received) -> None:
        await call.read()
        call.write(b"HTTP/1.1 200 OK\r\n" + EVENTS + chunk(event(0)))
        await call.drain()
        call.close()

    scene.a.script = scene.b.script = script
    client = await scene.connect()
    await client.send(request(ASKED, path=STREAM))
    assert b"0\r\n\r\n" not in await client.rest()
    assert len(scene.a.requests) + len(scene.b.requests) == 1


@pytest.mark.parametrize("path", [GENERATE, STREAM])
@in_scene(2)
async def test_what_triton_refuses_before_it_runs_goes_to_another_replica(
    scene: Scene, path: str
) -> None:
    refusal = reply(b'{"error":"Exceeds maximum queue size"}', status=503)
    scene.a.script = answering(refusal)
    client = await scene.connect()
    for _ in range(2):
        assert (await client.ask(request(ASKED, path=path))).status == 200
    assert len(scene.a.requests) >= 1 and len(scene.b.requests) == 2


@pytest.mark.parametrize("path", ["/v2/models/nope/generate", "/v2/models/nope/generate_stream"])
@in_scene()
async def test_an_unknown_model_is_json_to_generate_as_triton_has_it(
    scene: Scene, path: str
) -> None:
    answer = await scene.ask(request(ASKED, path=path))
    assert (answer.status, answer.header("content-type")) == (404, "application/json")
    assert json.loads(answer.body)["error"].startswith("Request for unknown model: 'nope'")


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
@pytest.mark.parametrize("path", [GENERATE, STREAM])
@in_scene()
async def test_generate_is_posted(scene: Scene, path: str, method: str) -> None:
    client = await scene.connect()
    await client.send(request(b"", path=path, method=method))
    assert (await client.head()).status == 405


@in_scene()
async def test_headers_of_binary_and_compressed_requests_mean_nothing_to_generate(
    scene: Scene,
) -> None:
    """Triton's generate reads the one not at all and refuses the other by itself."""
    headers = ("Inference-Header-Content-Length: 999", "Content-Encoding: gzip")
    assert (await scene.ask(request(ASKED, *headers, path=GENERATE))).status == 200
    [call] = scene.a.requests
    assert call.header("inference-header-content-length") == "999"
    assert call.header("content-encoding") == "gzip"


@pytest.mark.parametrize("keys", [{"sequence_id": 7}, {"parameters": {"sequence_id": 7}}])
@in_scene(SEQUENCES)
async def test_a_sequence_stays_on_one_replica_whatever_it_is_asked_by(
    scene: Scene, keys: dict[str, object]
) -> None:
    infer = json.dumps({"inputs": [], "parameters": {"sequence_id": 7}}).encode()
    body = json.dumps({"text_input": "x", **keys}).encode()
    for path, data in ((INFER, infer), *((path, body) for path in (GENERATE, STREAM) * 3)):
        assert (await scene.ask(request(data, path=path))).status == 200
    assert sorted(len(one.requests) for one in scene.replicas) == [0, 0, 7]


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
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request(ASKED, path=STREAM))
    call = await hand.call()
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


@pytest.mark.parametrize("step", [1, 7, 60, 500])
@in_scene(RENAMED)
async def test_events_may_be_cut_anywhere(scene: Scene, step: int) -> None:
    stream = b"".join(event(number, PHYSICAL) for number in range(5)) + b"data: cut off"
    pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
    body = b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    scene.a.script = answering(b"HTTP/1.1 200 OK\r\n" + EVENTS + body)
    answer = await scene.ask(request(ASKED, path=STREAM))
    assert answer.body == b"".join(event(number) for number in range(5)) + b"data: cut off"


@in_scene(RENAMED)
async def test_an_event_too_long_to_be_held_goes_on_with_its_name_restored(scene: Scene) -> None:
    long = event(0, PHYSICAL)[:-3] + b',"t":"' + b"x" * 3 * SEARCHED + b'"}\n\n'
    body = b"".join(chunk(long[start : start + 999]) for start in range(0, len(long), 999))
    scene.a.script = answering(b"HTTP/1.1 200 OK\r\n" + EVENTS + body + b"0\r\n\r\n")
    answer = await scene.ask(request(ASKED, path=STREAM))
    assert answer.body == long.replace(PHYSICAL.encode(), b"m")
