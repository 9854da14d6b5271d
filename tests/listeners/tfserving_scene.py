"""The data port with TensorFlow Serving's routes, between raw clients and scripted replicas."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import grpc
from builders import DataPlane, replica, snapshot, target, until, view
from listeners.http_clients import Answer, Client
from listeners.http_messages import reply, request
from listeners.http_replicas import Received, Replica, Script

from serve.app.serving import Server
from serve.core.calls import Account, Call
from serve.core.snapshot import Snapshot
from serve.listeners.application import application
from serve.listeners.grpc.kserve import KServeGrpc
from serve.listeners.http.client import HttpClient
from serve.listeners.http.kserve import KServeHttp
from serve.listeners.tfserving.facade import TfServing
from serve.listeners.tfserving.grpc import TfServingGrpc
from serve.listeners.tfserving.http import router
from serve.proxy.journal import Ended
from serve.settings import Settings
from serve.tensors.tfserving import Tensor
from serve.tensors.tfserving_infer import infer_body
from serve.triton.grpc_pool import GrpcPool
from serve.triton.http_pool import Pool

LIMITS = Settings().limits
ONE = snapshot(view(target(1, "a"), target(2, "a"), labels={"stable": 1}, split="1=100"))


def config(
    inputs: Mapping[str, str], outputs: Mapping[str, str], *, batch: int = 8, **more: Any
) -> bytes:
    """A configuration as Triton writes it: names and types, each with rows of two elements."""

    def ports(named: Mapping[str, str]) -> list[dict[str, Any]]:
        return [
            {"name": name, "data_type": f"TYPE_{kind}", "dims": [2], **more.get(name, {})}
            for name, kind in named.items()
        ]

    known = {"name": "m", "max_batch_size": batch, "input": ports(inputs), "output": ports(outputs)}
    return json.dumps(known).encode()


PLAIN = config({"x": "FP32"}, {"y": "FP32"})


@dataclass(slots=True)
class Inference:
    """An infer request as a replica got it: its tensors, and what it asks of which output."""

    head: dict[str, Any]
    inputs: dict[str, Tensor]


def inference(call: Received) -> Inference:
    """Read an infer request with binary tensors."""
    size = int(call.header("inference-header-content-length") or 0)
    head, position, inputs = json.loads(call.body[:size]), size, {}
    for item in head["inputs"]:
        length = item["parameters"]["binary_data_size"]
        raw = call.body[position : position + length]
        inputs[item["name"]] = Tensor(item["datatype"], tuple(item["shape"]), raw)
        position += length
    assert position == len(call.body)
    return Inference(head, inputs)


def outputs_reply(outputs: Mapping[str, Tensor]) -> bytes:
    """The answer with these outputs, as Triton sends it: in binary."""
    body = infer_body(outputs)
    head = json.loads(body.data[: body.head])
    start = json.dumps(
        {"model_name": "m", "model_version": "1", "outputs": head["inputs"]}
    ).encode()
    return reply(start + body.data[body.head :], f"Inference-Header-Content-Length: {len(start)}")


def model(answer: Callable[[Inference], Mapping[str, Tensor]], *, known: bytes = PLAIN) -> Script:
    """A replica that serves a model of this configuration."""

    async def script(call: Received) -> None:
        await call.read()
        if call.line.startswith("GET "):
            call.write(reply(known))
        else:
            call.write(outputs_reply(answer(inference(call))))

    return script


def gives_its_input(asked: Inference) -> dict[str, Tensor]:
    return {"y": asked.inputs["x"]}


@dataclass(slots=True)
class Written:
    """One line of the access log."""

    call: Call
    code: str
    error: str
    account: Account


class Lines:
    """An access log of all calls."""

    def __init__(self) -> None:
        self.all: list[Written] = []

    def takes(self) -> bool:
        return True

    def write(self, ended: Ended) -> None:
        self.all.append(Written(ended.call, ended.code, ended.error, ended.account()))


@dataclass(slots=True)
class Front:
    """The running port. `facade` is what stands before KServe v2."""

    plane: DataPlane
    listener: KServeHttp
    facade: TfServing
    replicas: list[Replica]
    port: int
    rpc_port: int
    clients: list[Client]
    lines: Lines

    @property
    def a(self) -> Replica:
        return self.replicas[0]

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def ask(self, data: bytes) -> Answer:
        return await (await self.connect()).ask(data)

    async def post(self, path: str, body: Any, *headers: str) -> tuple[int, Any]:
        """Status and document of a POST; a body that is no bytes is written as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.ask(request(data, *headers, path=path))
        assert answer.header("content-type") == "application/json"
        return answer.status, json.loads(answer.body)

    async def rpc(
        self, method: str, message: bytes, *metadata: tuple[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        """A gRPC call with a real client: status code, answer or error in words, and trailers."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.rpc_port}") as channel:
            call = channel.unary_unary(method)(message, metadata=metadata)
            code = (await call.code()).value[0]
            said = (await call.details()).encode() if code else await call
            return code, said, dict(await call.trailing_metadata())

    async def get(self, path: str, *headers: str) -> tuple[int, Any]:
        """Status and document of a GET."""
        lines = [f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]
        answer = await self.ask("\r\n".join(lines).encode())
        assert answer.header("content-type") == "application/json"
        return answer.status, json.loads(answer.body)


@contextlib.asynccontextmanager
async def front(now: Snapshot, **limits: Any) -> Any:
    """The port with this snapshot; afterwards nothing may be left of any call."""
    replicas = [Replica() for _ in now.replicas]
    servers = [await one.listen() for one in replicas]
    ports = {name: one.port for name, one in zip(now.replicas, replicas, strict=True)}
    placed = {name: replica(name, http=port) for name, port in ports.items()}
    lines = Lines()
    placed_snapshot = dataclasses.replace(now, replicas=MappingProxyType(placed))
    plane = DataPlane(placed_snapshot, journal=lines)
    bounds = dataclasses.replace(LIMITS, **limits)
    pool = Pool(connect_timeout=5.0, clock=plane.clock)
    listener = KServeHttp(
        plane.gateway, pool, limits=bounds, clock=plane.clock, is_draining=lambda: False
    )
    facade = TfServing(plane.gateway, pool, limits=bounds, clock=plane.clock)
    app = application(listener, router(listener, facade))
    server = Server(app, protocol=partial(HttpClient, listener), port=0)
    if not server.config.loaded:
        server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    rpc = KServeGrpc(
        plane.gateway,
        GrpcPool(limits=bounds, connect_timeout=5.0, clock=plane.clock),
        limits=bounds,
        cancel="auto",
        clock=plane.clock,
        is_draining=lambda: False,
        services=TfServingGrpc(facade).services(),
    )
    listening = await asyncio.get_running_loop().create_server(rpc.connection, "127.0.0.1", 0)
    rpc_port = listening.sockets[0].getsockname()[1]
    made = Front(plane, listener, facade, replicas, port, rpc_port, [], lines)
    try:
        yield made
        await until(lambda: not (plane.loads.total or listener.held or pool.busy))
    finally:
        for client in made.clients:
            client.writer.transport.abort()
        rpc.close()
        for one in [*server.servers, *servers, listening]:
            one.close()
        pool.close()
        for one in replicas:
            await one.stop()


def in_front(
    now: Snapshot = ONE, **limits: Any
) -> Callable[[Callable[[Front], Awaitable[None]]], Callable[[], None]]:
    """Make a test of a coroutine that takes a `Front`."""

    def decorate(test: Callable[[Front], Awaitable[None]]) -> Callable[[], None]:
        async def play() -> None:
            async with asyncio.timeout(30), front(now, **limits) as made:
                await test(made)

        def run() -> None:
            asyncio.run(play())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
