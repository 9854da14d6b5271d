"""The HTTP data listener: what clients see of calls, questions, health and errors."""

import json

from builders import snapshot, target, until, view
from listeners.http_clients import Answer
from listeners.http_messages import GOOD, INFER, get, reply, request
from listeners.http_replicas import answering
from listeners.http_scene import Scene, in_scene

from serve.core.snapshot import Snapshot

ONE = snapshot(view(target(1, "a"), labels={"stable": 1}), generation=7)
EMPTY = snapshot(view())
LIVE, READY = "/v2/health/live", "/v2/health/ready"


def code(answer: Answer) -> str | None:
    """The gateway's own error code; the body must have the shape that clients read."""
    assert set(json.loads(answer.body)) == {"error"}
    return answer.code


@in_scene(ONE)
async def test_an_answer_passes_unchanged_with_the_decision_beside_it(scene: Scene) -> None:
    answer = await scene.ask(get(INFER, method="POST"))  # without a body
    assert (answer.status, answer.body) == (200, GOOD)
    assert answer.headers == [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(GOOD))),
        ("servegate-version", "1; by=latest; generation=7"),
        ("servegate-request-id", scene.log.last.request_id),
    ]
    assert scene.a.requests[0].header("content-length") == "0"
    labels = {"model": "m", "version": "1", "route": "latest", "protocol": "http"}
    assert scene.count("servegate_calls_total", verb="infer", code="200", **labels) == 1
    scene.a.script = answering(reply(b'{"error":"unexpected shape"}', status=400))
    answer = await scene.ask(request())
    assert (answer.status, answer.body) == (400, b'{"error":"unexpected shape"}')
    assert answer.code is None


@in_scene()
async def test_an_answer_stays_compressed_and_a_redirect_is_an_answer(scene: Scene) -> None:
    headers = ("Location: /x", "Content-Encoding: gzip", "Connection: x-hop", "X-Hop: 1")
    scene.a.script = answering(reply(b"\x1f\x8bx", *headers, status=302))
    answer = await scene.ask(request())
    assert (answer.status, answer.body) == (302, b"\x1f\x8bx")
    assert (answer.header("location"), answer.header("content-encoding")) == ("/x", "gzip")
    assert answer.header("x-hop") is None


@in_scene(ONE)
async def test_headers_of_the_request_go_on_and_those_of_the_hop_do_not(scene: Scene) -> None:
    headers = (
        "Connection: x-hop, keep-alive",
        "X-Hop: 1",
        "Keep-Alive: 5",
        "TE: trailers",
        "Accept-Encoding: gzip",
        "Content-Type: application/json",
        "X-Twice: 1",
        "X-Twice: 2",
    )
    path = "/v2/models/m/versions/stable/infer?q=1"
    answer = await scene.ask(request(b"{}", *headers, path=path))
    assert answer.header("servegate-version") == "1; by=label:stable; generation=7"
    [made] = scene.a.requests
    assert made.line == "POST /v2/models/m/versions/1/infer HTTP/1.1"
    assert made.headers == [
        ("Host", f"127.0.0.1:{scene.a.port}"),
        ("accept-encoding", "gzip"),
        ("content-type", "application/json"),
        ("x-twice", "1"),
        ("x-twice", "2"),
        ("Content-Length", "2"),
    ]


@in_scene()
async def test_a_client_that_leaves_in_the_middle_of_its_head_causes_no_call(scene: Scene) -> None:
    client = await scene.connect()
    await client.send(request()[:30])
    client.close()
    await until(lambda: not scene.listener.clients)
    assert scene.a.requests == []


@in_scene(ONE)
async def test_an_error_of_the_gateway_leaves_the_connection_open(scene: Scene) -> None:
    client = await scene.connect()
    for method, path, status, error in (
        ("POST", "/v2/models/sim%70le/infer", 404, "unknown_model"),
        ("POST", "/v2/models/m/versions/" + "9" * 5000 + "/infer", 400, "bad_version"),
        ("GET", "//v2/models/m", 404, "not_here"),
        ("GET", INFER, 405, "method_not_allowed"),
        ("POST", "/v2/repository/models/m/load", 403, "not_served"),
        ("OPTIONS", "*", 404, "not_here"),
    ):
        answer = await client.ask(request(path=path, method=method))
        assert (answer.status, code(answer)) == (status, error), path
        assert (await client.ask(request())).status == 200
        if error == "unknown_model":
            said = "Request for unknown model: 'sim%70le' is not found"
            assert json.loads(answer.body)["error"].startswith(said)
            assert answer.header("content-type") == "text/plain"


@in_scene(None)
async def test_without_a_snapshot_the_gateway_lives_and_serves_nothing(scene: Scene) -> None:
    for question in (request(), get("/v2/models/m")):
        answer = await scene.ask(question)
        assert (answer.status, code(answer)) == (503, "no_snapshot")
        assert answer.header("retry-after") == "1"
    assert [(await scene.ask(get(path))).status for path in (LIVE, READY)] == [200, 400]


@in_scene(admitted=0)
async def test_health_is_told_as_triton_and_as_open_inference_tell_it(scene: Scene) -> None:
    client = await scene.connect()
    answers = [await client.ask(get(path)) for path in (LIVE, READY)]
    told = [(one.status, json.loads(one.body)) for one in answers]
    assert told == [(200, {"live": True}), (200, {"ready": True})]
    answer = await client.ask(request())
    assert (answer.status, code(answer), answer.header("retry-after")) == (429, "overloaded", "1")


@in_scene(ONE, draining=True)
async def test_a_gateway_that_drains_is_not_ready_and_serves_what_comes(scene: Scene) -> None:
    client = await scene.connect()
    assert [(await client.ask(get(path))).status for path in (LIVE, READY)] == [200, 400]
    assert (await client.ask(request())).status == 200


@in_scene(EMPTY)
async def test_a_model_without_a_version_is_not_served_and_not_ready(scene: Scene) -> None:
    answer = await scene.ask(request())
    assert (answer.status, code(answer)) == (503, "no_replica")
    for model in ("m", "nope", "m/versions/9", "m/versions/x"):
        answer = await scene.ask(get(f"/v2/models/{model}/ready"))
        assert (answer.status, answer.header("content-type")) == (400, "text/plain"), model
        assert json.loads(answer.body) == {"error": "Model version not ready"}


@in_scene(ONE)
async def test_questions_go_to_a_replica_with_the_headers_of_the_client(scene: Scene) -> None:
    client = await scene.connect()
    metadata = await client.ask(get("/v2", "X-A: 1", "Connection: x-b", "X-B: 2"))
    assert (metadata.status, metadata.header("servegate-version")) == (200, None)
    model = await client.ask(get("/v2/models/m"))
    assert (model.body, model.header("servegate-version")) == (GOOD, "1; by=latest; generation=7")
    await client.ask(get("/v2/models/m/versions/1/config"))
    assert [call.path for call in scene.a.requests] == [
        "/v2",
        "/v2/models/m",
        "/v2/models/m/versions/1/config",
    ]
    assert [name for name, _ in scene.a.requests[0].headers] == ["Host", "x-a"]


RENAMED: Snapshot = snapshot(view(target(1, "a", physical="m--0a1b")))


@in_scene(RENAMED)
async def test_questions_are_answered_with_the_models_own_name(scene: Scene) -> None:
    broken = b'{"error":"the configuration of \'m\' cannot be read"}'
    for said, status in ((b'{"name":"m","inputs":[]}', 200), (broken, 500)):
        theirs = said.replace(b'"m"', b'"m--0a1b"').replace(b"'m'", b"'m--0a1b'")
        scene.a.script = answering(reply(theirs, status=status))
        answer = await scene.ask(get("/v2/models/m"))
        assert (answer.status, answer.body) == (status, said)
    assert scene.a.requests[0].path == "/v2/models/m--0a1b"


@in_scene()
async def test_a_question_whose_replica_does_not_answer_in_time_is_told_so(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(get("/v2/models/m/config"))
    waiting = await hand.call()
    scene.pass_time(scene.listener.limits.call + 1)  # spent: the answer comes too late
    waiting.reset()
    hand.done_all()
    assert (await client.answer()).status == 502
