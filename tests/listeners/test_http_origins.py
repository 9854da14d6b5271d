"""Who a request claims to be: hosts, pages of other sites, and what only a gateway may say."""

import dataclasses
from types import MappingProxyType

from listeners.http_messages import INFER, request
from listeners.http_scene import Scene, fleet, in_scene

from serve.core.access import Key, Role

KEY, TOKEN = Key.create(Role.PREDICTOR)
GUARDED = dataclasses.replace(fleet(1), keys=MappingProxyType({KEY.id: KEY}), guarded=True)
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
        assert b"'evil.example' does not belong to this machine" in answer.body
    assert scene.a.requests == []
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "triton"):
        assert (await scene.ask(called(host))).status == 200, host


@in_scene(loops=("uvloop",))
async def test_a_port_that_others_reach_has_any_name(scene: Scene) -> None:
    assert (await scene.ask(called("models.example"))).status == 200


@in_scene(GUARDED, local=True, loops=("uvloop",))
async def test_a_port_that_asks_for_keys_has_any_name(scene: Scene) -> None:
    assert (await scene.ask(called("models.example"))).status == 401
    bearer = f"Authorization: Bearer {TOKEN}"
    assert (await scene.ask(called("models.example", bearer))).status == 200


@in_scene(local=True, loops=("uvloop",))
async def test_a_page_of_another_site_may_call_models_and_reads_no_answer(scene: Scene) -> None:
    """Browsers hand an answer to another site only with `Access-Control-Allow-Origin`."""
    answer = await scene.ask(called("localhost", "Origin: http://evil", "Content-Type: text/plain"))
    assert answer.status == 200
    assert answer.header("access-control-allow-origin") is None
    preflight = request(b"", "Origin: http://evil", method="OPTIONS")
    assert (await scene.ask(preflight)).status == 405


@in_scene(loops=("uvloop",))
async def test_what_a_client_claims_in_our_name_does_not_reach_triton(scene: Scene) -> None:
    claims = ("Servegate-Version: 9", "SERVEGATE-ERROR: x", "X-Forwarded-For: 10.0.0.1")
    for path, method in ((INFER, "POST"), (CONFIG, "GET")):
        asked = request(b"{}", *claims, "X-Kept: 1", path=path, method=method)
        client = await scene.connect()
        for _ in range(4):  # the last of them are known
            await client.ask(asked)
            call = scene.a.requests[-1]
            assert call.header("x-kept") == "1"
            assert not any(call.header(one.split(":")[0].lower()) for one in claims)
    assert len(scene.a.requests) == 8


@in_scene(loops=("uvloop",))
async def test_an_expectation_that_cannot_be_met_is_refused(scene: Scene) -> None:
    for path in (INFER, "/v2/nothing", "/v2/repository/index"):
        client = await scene.connect()
        await client.send(request(b"{}", "Expect: 200-ok", path=path))
        answer = await client.answer()
        assert (answer.status, answer.code) == (417, "expectation_failed"), path
        assert await client.rest() == b""
    assert scene.a.requests == []
