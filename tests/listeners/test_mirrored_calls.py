"""Copies of calls over both protocols: what a candidate gets, and what callers notice of it."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from builders import DataPlane, snapshot, target, until, view
from grpc_wire import infer, message, window
from listeners import grpc_scene
from listeners.http_messages import reply, request
from listeners.http_replicas import answering, breaking_off
from listeners.http_scene import LIMITS, Scene, in_scene
from tritonclient.grpc import service_pb2

from serve.core.calls import Reply
from serve.core.routes import Mirror
from serve.listeners.mirror_senders import senders
from serve.proxy.mirrors import MirroredCall, Mirrors
from serve.triton.grpc_pool import GrpcPool
from serve.triton.http_pool import Pool

ALL = Mirror(2, 100)
TARGETS = (target(1, "a"), target(2, "b", physical="m--2"))
BOTH = snapshot(view(*TARGETS, split="1=1", rules={"mirror": ALL}))


async def same_bodies(call: MirroredCall, reply: Reply) -> Mapping[str, tuple[int, int]]:
    """Stands in for the child process that compares."""
    assert call.response is not None
    return {"body": (1, 0) if call.response.body == reply.body else (0, 1)}


async def kept_by_none(call: MirroredCall) -> None:
    """Nothing is kept here."""


@asynccontextmanager
async def mirroring(plane: DataPlane) -> AsyncIterator[Mirrors]:
    """Real copies of the calls of this data plane, of each that may be mirrored."""
    http = Pool(connect_timeout=5.0, clock=plane.clock)
    grpc = GrpcPool(limits=LIMITS, connect_timeout=5.0, clock=plane.clock)
    plane.gateway.mirrors = mirrors = Mirrors(
        replicas=lambda: plane.live.snapshot.replicas,
        loads=plane.loads,
        health=plane.health,
        meters=plane.meters,
        draw=lambda: 0.0,
        clock=plane.clock,
        senders=senders(http, grpc, clock=plane.clock, limit=1 << 20),
        compare=same_bodies,
        keep=kept_by_none,
        seconds=30.0,
    )
    with contextlib.ExitStack() as stack:
        for close in (grpc.close, http.close, mirrors.close):
            stack.callback(close)
        yield mirrors
        await until(lambda: not plane.loads.replicas)
    await until(lambda: grpc.connections == 0)


def ended(plane: DataPlane, protocol: str, code: str) -> float:
    labels = {"model": "m", "version": "2", "protocol": protocol, "code": code}
    return plane.count("servegate_mirrored_calls_total", **labels)


def compared(plane: DataPlane) -> tuple[float, ...]:
    """Responses that agree, that differ, and that were not kept."""
    about = {"model": "m", "version": "2"}
    agrees, differs = (
        plane.count("servegate_mirror_rows_total", output="body", verdict=verdict, **about)
        for verdict in ("agrees", "differs")
    )
    not_kept = plane.count("servegate_mirror_comparisons_total", outcome="not_kept", **about)
    return agrees, differs, not_kept


def dropped(plane: DataPlane) -> float:
    return plane.count("servegate_mirror_drops_total", model="m", version="2", reason="too_large")


@in_scene(BOTH)
async def test_the_candidate_gets_the_same_http_request_under_its_own_name(scene: Scene) -> None:
    scene.b.script = answering(reply(b'{"model_name":"m--2"}'))
    async with mirroring(scene.plane):
        got = await scene.ask(request(b"body", "X-Team: blue", "Accept-Encoding: gzip"))
        assert got.status == 200
        assert "by=split" in (got.header("servegate-version") or "")
        await until(lambda: ended(scene.plane, "http", "200") == 1)
    [copy] = scene.b.requests
    assert copy.line == "POST /v2/models/m--2/versions/2/infer HTTP/1.1"
    assert scene.b.bodies == [b"body"]
    assert copy.header("x-team") == "blue"
    assert copy.header("accept-encoding") is None, "what is compared has to be readable"


@in_scene(BOTH)
async def test_only_calls_that_went_well_and_could_be_kept_are_mirrored(scene: Scene) -> None:
    async with mirroring(scene.plane):
        scene.a.script = answering(reply(b'{"error":"no"}', status=400))
        assert (await scene.ask(request())).status == 400
        scene.a.script = answering(reply())
        named = request(path="/v2/models/m/versions/1/infer")
        assert (await scene.ask(named)).status == 200
        assert (await scene.ask(request(bytes(3 << 20)))).status == 200
        await until(lambda: dropped(scene.plane) == 1)
    assert scene.b.requests == []


@in_scene(BOTH)
async def test_a_caller_hears_nothing_of_a_candidate_that_fails(scene: Scene) -> None:
    scene.b.script = breaking_off()
    async with mirroring(scene.plane):
        client = await scene.connect()
        for _ in range(3):
            assert (await client.ask(request())).status == 200
        await until(lambda: ended(scene.plane, "http", "outcome_unknown") == 3)
    assert not scene.plane.health.pauses
    assert scene.plane.count("servegate_errors_total", model="m") == 0


@in_scene(BOTH)
async def test_a_call_ends_while_its_copy_is_still_on_its_way(scene: Scene) -> None:
    hand = scene.b.by_hand()
    async with mirroring(scene.plane):
        assert (await scene.ask(request())).status == 200
        copy = await hand.call()
        assert scene.plane.loads.total == 0, "a copy takes no slot"
        assert scene.plane.loads.on_replica("b") == 1
        await hand.answer(copy)


@in_scene(BOTH)
async def test_an_http_response_is_compared_if_it_came_whole_and_plain(scene: Scene) -> None:
    body = b'{"outputs":[]}'
    encoded = reply(body, "Content-Encoding: gzip")
    large = reply(bytes(1 << 20))
    async with mirroring(scene.plane):
        for count, (a, b, expected) in enumerate(
            (
                (reply(body), reply(body), (1, 0, 0)),
                (reply(body), reply(b"{}"), (1, 1, 0)),
                (encoded, reply(body), (1, 1, 1)),
                (large, reply(body), (1, 1, 2)),
            ),
            start=1,
        ):
            scene.a.script, scene.b.script = answering(a), answering(b)
            assert (await scene.ask(request())).status == 200
            await until(lambda number=count: ended(scene.plane, "http", "200") == number)
            await until(lambda wanted=expected: compared(scene.plane) == wanted)


@grpc_scene.in_scene(BOTH)
async def test_the_candidate_gets_the_same_grpc_message_under_its_own_name(
    scene: grpc_scene.Scene,
) -> None:
    async with mirroring(scene.plane):
        client = await scene.client()
        client.call(1, metadata=[("x-team", "blue")])
        [received] = await scene.over(client, 1)
        assert received.status == 0
        await until(lambda: ended(scene.plane, "grpc", "OK") == 1)
        await until(lambda: compared(scene.plane) == (1, 0, 0))
    [call], [copy] = scene.tritons["a"].calls, scene.tritons["b"].calls
    asked = [service_pb2.ModelInferRequest.FromString(bytes(one.body)[5:]) for one in (call, copy)]
    assert (asked[1].model_name, asked[1].model_version) == ("m--2", "2")
    asked[1].model_name, asked[1].model_version = asked[0].model_name, asked[0].model_version
    assert asked[0] == asked[1]
    assert copy.heads[0]["x-team"] == "blue"


@grpc_scene.in_scene(BOTH)
async def test_a_grpc_message_that_was_not_kept_is_not_mirrored(scene: grpc_scene.Scene) -> None:
    async with mirroring(scene.plane):
        triton, client = scene.tritons["a"], await scene.client()
        client.open(1)
        grpc_scene.send(client, message(infer(size=300_000)))
        await until(lambda: bool(triton.calls))
        triton.peer.send(window(0, 1 << 20), window(1, 1 << 20))
        [received] = await scene.over(client, 1)
        assert received.status == 0
        await until(lambda: dropped(scene.plane) == 1)
    assert scene.tritons["b"].calls == []
