"""The data port with TensorFlow Serving's routes, between raw clients and scripted replicas."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from builders import snapshot, target, until, view
from listeners.http_clients import Answer
from listeners.http_messages import get, reply, request
from listeners.http_replicas import Received, Script
from listeners.http_scene import Scene, scene
from loops import LOOPS, parametrized

from serve.core.snapshot import Snapshot
from serve.listeners.application import application
from serve.listeners.grpc.kserve import KServeGrpc
from serve.listeners.http.kserve import KServeHttp
from serve.listeners.tfserving.facade import TfServing
from serve.listeners.tfserving.grpc import TfServingGrpc
from serve.listeners.tfserving.http import router
from serve.tensors.tfserving_infer import infer_body
from serve.tensors.tfserving_tensors import RawTensor
from serve.triton.grpc_pool import GrpcPool

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
    inputs: dict[str, RawTensor]


def inference(call: Received) -> Inference:
    """Read an infer request with binary tensors."""
    size = int(call.header("inference-header-content-length") or 0)
    head, position, inputs = json.loads(call.body[:size]), size, {}
    for item in head["inputs"]:
        length = item["parameters"]["binary_data_size"]
        raw = call.body[position : position + length]
        inputs[item["name"]] = RawTensor(item["datatype"], tuple(item["shape"]), raw)
        position += length
    assert position == len(call.body)
    return Inference(head, inputs)


def outputs_reply(outputs: Mapping[str, RawTensor]) -> bytes:
    """The answer with these outputs, as Triton sends it: in binary."""
    body = infer_body(outputs)
    head = json.loads(body.head)
    start = json.dumps(
        {"model_name": "m", "model_version": "1", "outputs": head["inputs"]}
    ).encode()
    return reply(start + b"".join(body.tensors), f"Inference-Header-Content-Length: {len(start)}")


def model(
    answer: Callable[[Inference], Mapping[str, RawTensor]], *, known: bytes = PLAIN
) -> Script:
    """A replica that serves a model of this configuration."""

    async def script(call: Received) -> None:
        await call.read()
        if call.line.startswith("GET "):
            call.write(reply(known))
        else:
            call.write(outputs_reply(answer(inference(call))))

    return script


def gives_its_input(asked: Inference) -> dict[str, RawTensor]:
    return {"y": asked.inputs["x"]}


@dataclass(slots=True)
class Front(Scene):
    """The running port, and that of gRPC."""

    rpc_port: int = 0

    async def post(self, path: str, body: Any, *headers: str) -> tuple[int, Any]:
        """Status and document of a POST; a body that is no bytes is written as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return _document(await self.ask(request(data, *headers, path=path)))

    async def get(self, path: str, *headers: str) -> tuple[int, Any]:
        """Status and document of a GET."""
        return _document(await self.ask(get(path, *headers)))

    async def rpc(
        self, method: str, message: bytes, *metadata: tuple[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        """A gRPC call with a real client: status code, answer or error in words, and trailers."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.rpc_port}") as channel:
            call = channel.unary_unary(method)(message, metadata=metadata)
            code = (await call.code()).value[0]
            said = (await call.details()).encode() if code else await call
            return code, said, dict(await call.trailing_metadata())


def _document(answer: Answer) -> tuple[int, Any]:
    assert answer.header("content-type") == "application/json"
    return answer.status, json.loads(answer.body)


@contextlib.asynccontextmanager
async def front(now: Snapshot, limits: dict[str, Any]) -> AsyncIterator[Front]:
    """The ports with this snapshot; afterwards nothing may be left of any call."""
    facades = []

    def app(listener: KServeHttp) -> Any:
        gateway, pool = listener.gateway, listener.pool
        facades.append(TfServing(gateway, pool, limits=listener.limits, clock=listener.clock))
        return application(listener, router(listener, facades[0]))

    async with scene(now, limits=limits, app=app) as it:
        rpc = KServeGrpc(
            it.plane.gateway,
            GrpcPool(limits=it.listener.limits, connect_timeout=5.0, clock=it.plane.clock),
            limits=it.listener.limits,
            cancel="auto",
            clock=it.plane.clock,
            is_draining=lambda: False,
            services=TfServingGrpc(facades[0]).services(),
        )
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(rpc.connection, "127.0.0.1", 0)
        parts = {one.name: getattr(it, one.name) for one in dataclasses.fields(it)}
        yield Front(**parts, rpc_port=listening.sockets[0].getsockname()[1])
        await until(lambda: it.is_at_rest)
        facades[0].compute.close()
        rpc.close()
        listening.close()


def in_front(
    now: Snapshot = ONE, **limits: Any
) -> Callable[[Callable[[Front], Awaitable[None]]], Callable[[], None]]:
    """Make a test of a coroutine that takes a `Front`."""

    def decorate(test: Callable[[Front], Awaitable[None]]) -> Callable[[], None]:
        async def play() -> None:
            async with asyncio.timeout(30), front(now, limits) as made:
                await test(made)

        @functools.wraps(test)
        def run(loop: str) -> None:
            LOOPS[loop](play())

        return parametrized(run, test, ("uvloop",), hidden=1)

    return decorate
