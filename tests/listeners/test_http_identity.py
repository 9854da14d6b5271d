"""Who calls: request ids, the log, credentials, and what a request says of its origin."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from builders import snapshot, target, until, view
from fastapi import FastAPI
from listeners.http_clients import Client
from listeners.http_messages import INFER, MIB, chunked, get, reply, request
from listeners.http_replicas import Received, answering
from listeners.http_scene import Scene, in_scene

from serve.app.http_server import HttpServer
from serve.core.access import ApiKey, Role
from serve.listeners.http.connection import HttpClientConnection

KEY, WORDS = ApiKey.create(Role.PREDICTOR, ("m",))
OTHER, OTHER_WORDS = ApiKey.create(Role.PREDICTOR, ("other",))
BEARER = f"Authorization: Bearer {WORDS}"
OPEN = snapshot(
    view(target(1, "a")),
    view(target(1, "a", model="secret"), name="secret"),
    view(target(1, "a", model="state"), name="state", sequences=True),
)
KEYS = MappingProxyType({one.id: one for one in (KEY, OTHER)})
GUARDED = replace(OPEN, keys=KEYS, guarded=True)


def told(answer: object) -> str:
    identity = answer.header("servegate-request-id")  # type: ignore[attr-defined]
    assert isinstance(identity, str)
    return identity


# --- request ids ----------------------------------------------------------------------------------


@in_scene()
async def test_a_callers_request_id_goes_to_triton_and_comes_back(scene: Scene) -> None:
    client = await scene.connect()
    sent = ["r-1"] * 3 + [f"r-{number:05}" for number in range(8)]  # known, and after a pattern
    for identity in sent:
        assert told(await client.ask(request(b"{}", f"X-Request-Id: {identity}"))) == identity
    assert len(scene.listener._patterns) == 1
    assert [call.header("x-request-id") for call in scene.a.requests] == sent
    assert [account.request_id for _, _, account in scene.log.lines] == sent


@in_scene()
async def test_calls_without_a_request_id_get_one_that_triton_does_not_see(scene: Scene) -> None:
    client = await scene.connect()
    made = [told(await client.ask(request())) for _ in range(4)]
    assert [account.request_id for _, _, account in scene.log.lines] == made
    assert all(b"request-id" not in call.head.lower() for call in scene.a.requests)
    await client.ask(request(b"{}", "X-Request-Id: r-1"))
    made.append(told(await client.ask(b"nonsense\r\n\r\n")))
    assert len({*made, "", "r-1"}) == 7


@in_scene()
async def test_every_answer_says_the_request_id(scene: Scene) -> None:
    named, beyond = "X-Request-Id: r-1", "Inference-Header-Content-Length: 3"
    for data, status in (
        (request(b"{}", named, path="/v2/models/nope/infer"), 404),
        (request(b"{}", named, beyond), 400),
        (chunked(b"{}", headers=(named, beyond)), 400),
        (request(b"{}", named, length=1 << 50), 413),
        (get("/v2/nowhere", named), 404),
        (get("/v2/health/live", named), 200),
    ):
        answer = await scene.ask(data)
        assert (answer.status, told(answer)) == (status, "r-1"), data


@in_scene()
async def test_a_request_that_waits_in_a_row_and_is_refused_says_its_id(scene: Scene) -> None:
    client, hand, call = await scene.begin(request(b"{}", "X-Request-Id: r-1"))
    await client.send(request(b"{}", "X-Request-Id: r-2", "Inference-Header-Content-Length: 3"))
    await (await call.read()).drain()
    call.write(reply())
    assert [told(await client.answer()) for _ in range(2)] == ["r-1", "r-2"]
    hand.done_all()


# --- what the log is told -------------------------------------------------------------------------


@in_scene()
async def test_the_log_says_bytes_peer_trace_and_time(scene: Scene) -> None:
    async def script(call: Received) -> None:
        await call.read()
        scene.plane.clock.now += 0.25
        call.write(reply(bytes(2 * call.size)))

    scene.a.script = script
    client = await scene.connect()
    host, port = client.writer.get_extra_info("sockname")
    for size in (2, 100_000, 3 * MIB):
        for trace in ("00-aa-01", "00-bb-01", "00-cc-01"):
            await client.ask(request(bytes(size), f"Traceparent: {trace}"))
            account = scene.log.last
            assert (account.received, account.answered) == (size, 2 * size)
            assert (account.traceparent, account.upstream) == (trace, 0.25)
            assert account.peer == f"{host}:{port}"


@in_scene()
async def test_chunks_are_counted_without_their_framing(scene: Scene) -> None:
    scene.a.script = answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert (await scene.ask(chunked(b"12", b"345", b"6"))).body == b"abcde"
    assert (scene.log.last.received, scene.log.last.answered) == (6, 5)


@in_scene()
async def test_of_a_large_body_that_breaks_off_the_log_hears_how_far_it_came(scene: Scene) -> None:
    hand = scene.a.by_hand()
    client = await scene.connect()
    await client.send(request(bytes(3 * MIB), length=8 * MIB))
    await (await hand.call()).read_some(3 * MIB)
    client.reset()
    await until(lambda: scene.is_at_rest)
    assert scene.log.lines[-1][1] == "client_left"
    assert scene.log.last.received == 3 * MIB
    hand.done_all()


# --- credentials ----------------------------------------------------------------------------------


async def statuses(client: Client, data: bytes, count: int = 3) -> set[int]:
    return {(await client.ask(data)).status for _ in range(count)}


@in_scene(GUARDED)
async def test_a_key_opens_its_models_and_stays_here(scene: Scene) -> None:
    client = await scene.connect()
    assert await statuses(client, request(b"{}", BEARER)) == {200}
    for number in range(5):  # and where heads follow a pattern
        assert await statuses(client, request(b"{}", BEARER, f"X-A: {number}"), 1) == {200}
    assert len(scene.a.requests) == 8
    assert all(b"uthorization" not in call.head for call in scene.a.requests)


@in_scene(GUARDED)
async def test_without_a_valid_key_every_model_answers_the_same(scene: Scene) -> None:
    for headers in ((), (f"Authorization: Bearer {WORDS}x",), (BEARER, BEARER)):
        client = await scene.connect()
        for model in ("m", "secret", "state", "nope"):
            for _ in range(3):
                path = f"/v2/models/{model}/infer"
                answer = await client.ask(request(b"{}", *headers, path=path))
                assert (answer.status, answer.code) == (401, "unauthenticated"), headers
                assert answer.header("www-authenticate") == 'Bearer realm="servegate"'
    assert scene.a.requests == []


@in_scene(GUARDED)
async def test_a_known_head_is_refused_once_its_key_is_revoked(scene: Scene) -> None:
    client = await scene.connect()
    for _ in range(3):  # two keys on one connection are two callers
        assert await statuses(client, request(b"{}", BEARER)) == {200}
        other = request(b"{}", f"Authorization: Bearer {OTHER_WORDS}")
        assert await statuses(client, other) == {404}
    now = scene.plane.live.snapshot
    scene.plane.live.swap(replace(now, generation=99, keys=MappingProxyType({OTHER.id: OTHER})))
    assert await statuses(client, request(b"{}", BEARER)) == {401}


@in_scene(GUARDED)
async def test_the_key_is_checked_before_the_body_of_a_sequence_is_read(scene: Scene) -> None:
    for model in ("state", "nope"):
        client = await scene.connect()
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\n".encode()
        answer = await client.ask(head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert answer.status == 401
    client = await scene.connect()
    head = f"POST /v2/models/secret/infer HTTP/1.1\r\nHost: x\r\n{BEARER}\r\n".encode()
    assert (await client.ask(head + b"Content-Length: 2\r\n\r\n{}")).status == 404


# --- applications behind the port ----------------------------------------------------------------


def app() -> FastAPI:
    made = FastAPI()

    @made.get("/plain")
    async def plain() -> dict[str, int]:
        return {"a": 1}

    @made.get("/broken")
    async def broken() -> None:
        raise RuntimeError("a fault of ours")

    return made


@asynccontextmanager
async def behind(scene: Scene, application: Any) -> AsyncIterator[Client]:
    """A client of this application, on a port of the scene's listener."""
    server = HttpServer(application, protocol=partial(HttpClientConnection, scene.listener))
    server.config.load()
    loop = asyncio.get_running_loop()
    made = partial(HttpClientConnection, scene.listener, server.config, server.server_state, {})
    listening = await loop.create_server(made, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    scene.clients.append(client)
    yield client
    listening.close()


@in_scene()
async def test_an_answer_that_names_no_call_is_given_a_name(scene: Scene) -> None:
    for path, status in (("/plain", 200), ("/nowhere", 404), ("/broken", 500)):
        async with behind(scene, app()) as client:
            given = await client.ask(get(path, "X-Request-Id: r-1"))
            assert (given.status, given.header("servegate-request-id")) == (status, "r-1")
        async with behind(scene, app()) as client:
            made = await client.ask(get(path))
            assert made.header("servegate-request-id") not in (None, "", "r-1"), path


@in_scene()
async def test_an_answer_that_names_its_call_is_left_alone(scene: Scene) -> None:
    async def names(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"servegate-request-id", b"its own")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    async with behind(scene, names) as client:
        answer = await client.ask(get("/", "X-Request-Id: r-1"))
    assert answer.header("servegate-request-id") == "its own"


# --- hosts, pages of other sites, and what only a gateway may say --------------------------------

CONFIG = "/v2/models/m/config"


def called(host: str, *headers: str, path: str = INFER) -> bytes:
    asked = request(b"{}", *headers) if path == INFER else request(b"", method="GET", path=path)
    return asked.replace(b"Host: x", f"Host: {host}".encode())


@in_scene(local=True, loops=("uvloop",))
async def test_a_local_port_is_called_by_a_name_of_this_machine(scene: Scene) -> None:
    """Else the owner of a name could point it here, and its pages would be of the same site."""
    for path in (INFER, CONFIG, "/v1/models/m", "/v2/health/live"):
        answer = await scene.ask(called("evil.example:8000", path=path))
        assert (answer.status, answer.code) == (403, "forbidden"), path
        assert b"'evil.example' is not a name of this machine" in answer.body
    assert scene.a.requests == []
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "triton"):
        assert (await scene.ask(called(host))).status == 200, host


@in_scene(loops=("uvloop",))
async def test_a_port_that_others_reach_has_any_name(scene: Scene) -> None:
    assert (await scene.ask(called("models.example"))).status == 200


@in_scene(GUARDED, local=True, loops=("uvloop",))
async def test_a_port_that_asks_for_keys_has_any_name(scene: Scene) -> None:
    assert (await scene.ask(called("models.example"))).status == 401
    assert (await scene.ask(called("models.example", BEARER))).status == 200


@in_scene(local=True, loops=("uvloop",))
async def test_a_page_of_another_site_may_call_models_and_reads_no_answer(scene: Scene) -> None:
    """Browsers hand an answer to another site only with `Access-Control-Allow-Origin`."""
    answer = await scene.ask(called("localhost", "Origin: http://evil", "Content-Type: text/plain"))
    assert answer.status == 200
    assert answer.header("access-control-allow-origin") is None
    preflight = request(b"", "Origin: http://evil", method="OPTIONS")
    assert (await scene.ask(preflight)).status == 405


@in_scene(loops=("uvloop",))
async def test_an_expectation_that_cannot_be_met_is_refused(scene: Scene) -> None:
    for path in (INFER, "/v2/nothing", "/v2/repository/index"):
        client = await scene.connect()
        await client.send(request(b"{}", "Expect: 200-ok", path=path))
        answer = await client.answer()
        assert (answer.status, answer.code) == (417, "expectation_failed"), path
        assert await client.rest() == b""
    assert scene.a.requests == []
