"""Names that Triton knows versions by are restored; sequences stay on one replica."""

import pytest
from builders import snapshot, target, until, view
from listeners.http_messages import chunk, reply, request
from listeners.http_replicas import Received, answering
from listeners.http_scene import Scene, in_scene

from serve.wire.restoring import SEARCHED

MIB = 1 << 20
PHYSICAL = "m--0a1b2c3d"
RENAMED = snapshot(view(target(1, "a", physical=PHYSICAL)))
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


@in_scene(MOVED)
async def test_an_answer_says_the_models_own_version(scene: Scene) -> None:
    scene.a.script = answering(reply(b'{"model_name":"m","model_version":"1","outputs":[]}'))
    answer = await scene.ask(request())
    assert answer.body == b'{"model_name":"m","model_version":"3","outputs":[]}'
    assert scene.a.requests[0].path == "/v2/models/m/versions/1/infer"


@pytest.mark.parametrize("size", [100, 20_000, 600_000, 3 * MIB])
@in_scene(RENAMED)
async def test_in_a_binary_answer_the_length_of_the_json_follows(scene: Scene, size: int) -> None:
    tensor = (TENSOR * -(-size // len(TENSOR)))[:size]
    header = f"Inference-Header-Content-Length: {len(THEIRS)}"
    scene.a.script = answering(reply(THEIRS + tensor, header))
    client = await scene.connect()
    for _ in range(2):
        answer = await client.ask(request())
        json_length = int(answer.header("inference-header-content-length") or 0)
        assert answer.body[:json_length] == OURS
        assert answer.body[json_length:] == tensor


@pytest.mark.parametrize("cut", range(1, len(THEIRS) + 5, 3))
@pytest.mark.parametrize("framing", ["length", "chunks"])
@in_scene(RENAMED, loops=("uvloop",))
async def test_a_name_may_be_cut_anywhere(scene: Scene, cut: int, framing: str) -> None:
    body = THEIRS + b" " * 10

    async def script(call: Received) -> None:
        await call.read()
        if framing == "length":
            call.write(reply(body[:cut], length=len(body)))
        else:
            call.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(body[:cut]))
        await until(lambda: bool(scene.upstreams) and scene.upstreams[0]._reply is not None)
        rest = body[cut:]
        call.write(rest if framing == "length" else chunk(rest) + b"0\r\n\r\n")

    scene.a.script = script
    client = await scene.connect()
    assert (await client.ask(request())).body == OURS + b" " * 10
    assert (await client.ask(request())).body == OURS + b" " * 10


@pytest.mark.parametrize("size", [100, SEARCHED + 10, 3 * MIB])
@in_scene(RENAMED)
async def test_an_answer_without_a_name_passes_as_it_is(scene: Scene, size: int) -> None:
    scene.a.script = answering(reply(bytes(size)))
    client = await scene.connect()
    for _ in range(2):
        assert (await client.ask(request())).body == bytes(size)


@pytest.mark.parametrize("status", [400, 404, 500, 503])
@in_scene(RENAMED)
async def test_an_error_names_the_model_as_callers_know_it(scene: Scene, status: int) -> None:
    said = f'{{"error":"unexpected shape for model \'{PHYSICAL}\'"}}'.encode()
    scene.a.script = answering(reply(said, status=status))
    answer = await scene.ask(request())
    assert (answer.status, answer.body) == (
        status,
        b'{"error":"unexpected shape for model \'m\'"}',
    )


@pytest.mark.parametrize(("now", "asked"), [(RENAMED, None), (1, "gzip, deflate")])
def test_triton_is_not_asked_to_compress_what_has_to_be_read(now: object, asked: str) -> None:
    @in_scene(now, loops=("uvloop",))  # type: ignore[arg-type]
    async def play(scene: Scene) -> None:
        await scene.ask(request(b"{}", "Accept-Encoding: gzip, deflate"))
        assert scene.a.requests[0].header("accept-encoding") == asked

    play("uvloop")
