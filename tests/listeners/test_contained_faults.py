"""A fault of one connection ends that connection, and is logged once. All others go on."""

import asyncio
from dataclasses import dataclass

import pytest
from builders import snapshot, target, until, view
from grpc_wire import GOAWAY, Client, infer
from listeners.grpc_scene import Scene as GrpcScene
from listeners.grpc_scene import in_scene as in_grpc
from listeners.grpc_scene import stage
from listeners.http_messages import request
from listeners.http_scene import Scene as HttpScene
from listeners.http_scene import in_scene
from loops import on_loops

from serve.listeners.grpc.connection import GrpcClientConnection
from serve.proxy.journal import EndedCall

TWO_MODELS = snapshot(view(target(1, "a")), view(target(1, "a", model="n"), name="n"))


@dataclass(slots=True)
class Faults:
    """A journal that fails for calls of model `n`."""

    raised: int = 0

    def takes(self) -> bool:
        return True

    def write(self, ended: EndedCall) -> None:
        if ended.call.model == "n":
            self.raised += 1
            raise ZeroDivisionError("a fault")


def logged(caplog: pytest.LogCaptureFixture) -> int:
    """How many faults the log has; and nothing else complained."""
    names = [one.name for one in caplog.records if one.levelname == "ERROR"]
    assert set(names) <= {"servegate.faults"}
    return len(names)


def at_the_gateway(scene: GrpcScene, client: Client) -> GrpcClientConnection:
    """The listener's end of a client's connection."""
    assert client._transport is not None
    port = client._transport.get_extra_info("sockname")[1]
    [found] = [one for one in scene.listener._clients if one.peer.endswith(f":{port}")]
    return found


# --- gRPC -----------------------------------------------------------------------------------------


def answer_all(scene: GrpcScene) -> None:
    for stream in sorted(scene.triton.peer.streams.keys() - {0}):
        scene.triton.answer(stream)


@in_grpc(TWO_MODELS, loops=("uvloop",))
async def test_a_flush_to_a_closed_transport_ends_no_other_connection(
    scene: GrpcScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.silence()
    gone, other = await scene.client(), await scene.client()
    for client in (gone, other):
        client.call(1)
        await until(lambda: len(scene.triton.calls) == scene.listener.calls > 0)
    transport = at_the_gateway(scene, gone).transport
    assert transport is not None
    transport.set_protocol(asyncio.Protocol())  # which hears of the end in our place
    transport.abort()
    await until(lambda: gone.is_closed)
    answer_all(scene)
    [received] = await scene.over(other, 1)
    scene.triton.answers = True
    again = await scene.call(other, 3)
    await until(lambda: scene.listener.connections == 1)
    assert (received.status, again.status) == (0, 0)
    assert (scene.triton.peer.is_closed, other.of(GOAWAY)) == (False, [])
    assert logged(caplog) == 1


@on_loops("uvloop")
async def test_an_answer_that_fails_for_one_client_reaches_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = Faults()
    async with stage(TWO_MODELS, journal=faults) as scene:
        scene.silence()
        bad, other = await scene.client(), await scene.client()
        bad.call(1, infer("n"))
        await until(lambda: len(scene.triton.calls) == 1)
        other.call(1)
        await until(lambda: len(scene.triton.calls) == 2)
        answer_all(scene)
        [received] = await scene.over(other, 1)
        await scene.over(bad, 1)
        assert (received.status, scene.triton.peer.is_closed) == (0, False)
    assert faults.raised == logged(caplog) == 1


class Faulty(GrpcClientConnection):
    """A connection that fails at every look at the clock."""

    def sweep(self, now: float) -> None:
        raise ZeroDivisionError("a fault")


@in_grpc(TWO_MODELS, loops=("uvloop",))
async def test_a_connection_that_fails_in_a_sweep_ends_and_the_sweep_goes_on(
    scene: GrpcScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.silence()
    client = await scene.client()
    client.call(1, metadata=[("grpc-timeout", "1S")])
    await until(lambda: len(scene.triton.calls) == 1)
    bad = Faulty(scene.listener._context, scene.listener._clients)
    scene.listener._clients.add(bad)
    scene.sweep(2.0)
    [received] = await scene.over(client, 1)
    scene.triton.answer(1)
    assert (received.status, bad.is_closed) == (4, True)
    assert logged(caplog) == 1


@in_grpc(TWO_MODELS, loops=("uvloop",), journal=Faults())
async def test_a_client_is_forgotten_although_the_end_of_its_calls_failed(scene: GrpcScene) -> None:
    scene.silence()
    client = await scene.client()
    client.call(1, infer("n"))
    client.call(3)
    await until(lambda: len(scene.triton.calls) == 2)
    client.abort()
    await until(lambda: scene.listener.connections == 0)
    answer_all(scene)


# --- HTTP -----------------------------------------------------------------------------------------


@in_scene(loops=("uvloop",))
async def test_an_http_answer_that_fails_ends_its_client_and_leaves_nothing(
    scene: HttpScene, caplog: pytest.LogCaptureFixture
) -> None:
    bad, other = await scene.connect(), await scene.connect()
    lines, scene.log.lines = scene.log.lines, None  # type: ignore[assignment]
    await bad.send(request())
    assert len(await bad.rest()) > 0  # it was answered before the log failed
    await until(lambda: scene.is_at_rest)
    scene.log.lines = lines
    assert (await other.ask(request())).status == 200
    assert logged(caplog) == 1


class FaultyClient:
    """Fails at every look at the clock."""

    is_aborted = False

    def tick(self, now: float) -> None:
        raise ZeroDivisionError("a fault")

    def abort(self) -> None:
        self.is_aborted = True


@in_scene(loops=("uvloop",))
async def test_an_http_connection_that_fails_in_a_sweep_ends_and_the_sweep_goes_on(
    scene: HttpScene, caplog: pytest.LogCaptureFixture
) -> None:
    bad = FaultyClient()
    scene.listener.clients.add(bad)  # type: ignore[arg-type]
    client = await scene.connect()
    await until(lambda: len(scene.listener.clients) == 2)
    scene.pass_time(1000.0)
    scene.listener.clients.discard(bad)  # type: ignore[arg-type]
    assert await client.rest() == b""
    assert bad.is_aborted
    assert logged(caplog) == 1
