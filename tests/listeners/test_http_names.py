"""Names that Triton knows versions by are restored; sequences stay on one replica."""

import pytest
from builders import snapshot, target, until, view
from listeners.http_messages import MIB, chunk, reply, request
from listeners.http_replicas import Received, answering
from listeners.http_scene import Scene, in_scene

from serve.wire.model_names import SEARCHED

PHYSICAL = "m--0a1b2c3d"
HERE = view(target(1, "a", physical=PHYSICAL))
RENAMED = snapshot(HERE)
NAMED_HERE_AND_THERE = (HERE, view(target(1, "a", model="n"), name="n"))
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MOVED = snapshot(view(type(target())("m", 3, "m", 1, "onnxruntime", ("a",))))
THEIRS = f'{{"id":"7","model_name":"{PHYSICAL}","model_version":"1","outputs":[]}}'.encode()
OURS = b'{"id":"7","model_name":"m","model_version":"1","outputs":[]}'
TENSOR = bytes(range(256)) * 40


@in_scene(RENAMED)
async def test_an_answer_says_the_models_own_name(scene: Scene) -> None:
    scene.a.script = answering(reply(THEIRS))
    client = await scene.connect()
    for _ in range(3):
        answer = await client.ask(request())
        assert (answer.body, answer.header("content-length")) == (OURS, str(len(OURS)))
    assert scene.a.requests[0].path == f"/v2/models/{PHYSICAL}/versions/1/infer"
    for status in (400, 404, 500, 503):
        said = b'{"error":"unexpected shape for model \'%b\'"}'
        scene.a.script = answering(reply(said % PHYSICAL.encode(), status=status))
        answer = await client.ask(request())
        assert (answer.status, answer.body) == (status, said % b"m")


@in_scene(MOVED)
async def test_an_answer_says_the_models_own_version(scene: Scene) -> None:
    scene.a.script = answering(reply(b'{"model_name":"m","model_version":"1","outputs":[]}'))
    answer = await scene.ask(request())
    assert answer.body == b'{"model_name":"m","model_version":"3","outputs":[]}'
    assert scene.a.requests[0].path == "/v2/models/m/versions/1/infer"


@in_scene(RENAMED)
async def test_in_a_binary_answer_the_length_of_the_json_follows(scene: Scene) -> None:
    header = f"Inference-Header-Content-Length: {len(THEIRS)}"
    client = await scene.connect()
    for size in (100, 20_000, 600_000, 3 * MIB):
        tensor = (TENSOR * -(-size // len(TENSOR)))[:size]
        scene.a.script = answering(reply(THEIRS + tensor, header))
        for _ in range(2):
            answer = await client.ask(request())
            json_length = int(answer.header("inference-header-content-length") or 0)
            assert answer.body[:json_length] == OURS, size
            assert answer.body[json_length:] == tensor, size


@pytest.mark.parametrize("framing", ["length", "chunks"])
@in_scene(RENAMED, loops=("uvloop",))
async def test_a_name_may_be_cut_anywhere(scene: Scene, framing: str) -> None:
    body, cut = THEIRS + b" " * 10, 0

    async def script(call: Received) -> None:
        await call.read()
        if framing == "length":
            call.write(reply(body[:cut], length=len(body)))
        else:
            call.write(CHUNKS + chunk(body[:cut]))
        await until(lambda: bool(scene.upstreams) and scene.upstreams[0]._reply is not None)
        rest = body[cut:]
        call.write(rest if framing == "length" else chunk(rest) + b"0\r\n\r\n")

    scene.a.script = script
    client = await scene.connect()
    for cut in range(1, len(THEIRS) + 5, 3):
        for _ in range(2):
            assert (await client.ask(request())).body == OURS + b" " * 10, cut


@in_scene(RENAMED)
async def test_an_answer_without_a_name_passes_as_it_is(scene: Scene) -> None:
    client = await scene.connect()
    for size in (100, SEARCHED + 10, 3 * MIB):
        scene.a.script = answering(reply(bytes(size)))
        for _ in range(2):
            assert (await client.ask(request())).body == bytes(size)


@in_scene(snapshot(*NAMED_HERE_AND_THERE), loops=("uvloop",))
async def test_triton_may_compress_only_what_has_not_to_be_read(scene: Scene) -> None:
    for model, passed in (("m", None), ("n", "gzip, deflate")):
        path = f"/v2/models/{model}/infer"
        await scene.ask(request(b"{}", "Accept-Encoding: gzip, deflate", path=path))
        assert scene.a.requests[-1].header("accept-encoding") == passed
