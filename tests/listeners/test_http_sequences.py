"""Calls of a sequence stay on one replica, however they are framed."""

import gzip
import zlib

from builders import snapshot, target, until, view
from listeners.http_messages import CHUNKED, HEAD, MIB, chunk, chunked, reply, request
from listeners.http_replicas import answering
from listeners.http_scene import Scene, in_scene

PACKED = {"gzip": gzip.compress, "deflate": zlib.compress}
SEQUENCES = snapshot(view(target(1, "a", "b", "c"), sequences=True))


def of(identity: object) -> bytes:
    quoted = f'"{identity}"' if isinstance(identity, str) else str(identity)
    return f'{{"parameters":{{"sequence_id":{quoted}}},"inputs":[]}}'.encode()


def places(scene: Scene) -> list[int]:
    return [len(one.requests) for one in scene.replicas]


def framed(body: bytes, framing: str) -> bytes:
    """A call with this JSON."""
    json_length = f"Inference-Header-Content-Length: {len(body)}"
    if framing == "chunks":
        return chunked(body[:5], body[5:])
    if framing == "binary":
        return request(body + bytes(1000), json_length)
    if framing in PACKED:
        packed = PACKED[framing](body + bytes(9))
        return request(packed, f"Content-Encoding: {framing}", json_length)
    return request(body)


@in_scene(SEQUENCES)
async def test_a_sequence_stays_on_one_replica_however_its_calls_are_framed(scene: Scene) -> None:
    for identity in range(1, 13):
        before = places(scene)
        for framing in ("length", "chunks", "binary", *PACKED):
            assert (await scene.ask(framed(of(identity), framing))).status == 200, framing
        client = await scene.connect()
        await scene.feed(client, request(of(identity)), 50)
        assert (await client.answer()).status == 200
        moved = [now - then for now, then in zip(places(scene), before, strict=True)]
        assert sorted(moved) == [0, 0, 6], identity
    assert min(places(scene)) > 0  # and sequences spread


@in_scene(SEQUENCES, loops=("uvloop",))
async def test_too_much_json_is_not_searched_for_a_sequence(scene: Scene) -> None:
    many = b"[]," * 200_000 + b"[]"
    answer = await scene.ask(request(of(5).replace(b"[]", b"[%b]" % many)))
    assert (answer.status, answer.code) == (413, "too_much_json")
    assert sum(places(scene)) == 0
    tensor = bytes(len(many))
    length = f"Inference-Header-Content-Length: {len(of(5))}"
    assert (await scene.ask(request(of(5) + tensor, length))).status == 200


@in_scene(SEQUENCES)
async def test_a_binary_call_of_a_sequence_is_sent_once_its_json_has_come(scene: Scene) -> None:
    client = await scene.connect()
    body = of(5)
    total = len(body) + 3 * MIB
    lengths = f"Content-Length: {total}\r\nInference-Header-Content-Length: {len(body)}\r\n\r\n"
    await client.send(HEAD + lengths.encode())
    await client.send(body[:10])
    await scene.until_read()
    assert scene.plane.loads.total == 0
    await client.send(body[10:] + bytes(MIB))
    await until(lambda: sum(places(scene)) == 1)
    assert (await client.ask(bytes(2 * MIB))).status == 200


@in_scene(SEQUENCES)
async def test_a_call_of_a_sequence_is_sent_once_it_is_known_and_never_again(scene: Scene) -> None:
    client = await scene.connect()
    body = of(5)
    await client.send(request(b"", "Expect: 100-continue", length=len(body)))
    assert (await client.answer()).status == 100
    assert sum(places(scene)) == 0
    for one in scene.replicas:
        one.script = answering(reply(b'{"error":"Server not ready"}', status=503))
    assert (await client.ask(body)).status == 503
    assert sum(places(scene)) == 1


@in_scene(snapshot(view(target(1, "a"), sequences=True)), limits={"in_flight": 1000})
async def test_what_waits_for_its_sequence_is_bounded_too(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(CHUNKED + chunk(b"{" + b" " * 900))
    await scene.until_read()
    await client.send(chunk(bytes(1000)))
    assert (await client.answer()).code == "no_room"
    assert scene.a.requests == []
