"""A gRPC server with the external scaler on a port of this machine, for tests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio
from builders import Clock

from serve.admin.keda.scaler import ExternalScaler
from serve.admin.keda.service import KedaService
from serve.control.scaling.board import HintBoard


def anybody(credential: bytes) -> None:
    """Nobody needs a key."""


@dataclass(frozen=True, slots=True)
class Served:
    """The service, and a channel to its server."""

    scaler: ExternalScaler
    channel: grpc.aio.Channel


@asynccontextmanager
async def serving(
    board: HintBoard, *, now: float = 1000.0, admit: Callable[[bytes], None] = anybody
) -> AsyncIterator[Served]:
    """A server for the block, which sees this moment of the epoch for ever."""
    scaler = ExternalScaler(board, wall=Clock(now))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(KedaService(scaler, admit=admit).handlers())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Served(scaler, channel)
    finally:
        scaler.close()
        await server.stop(1.0)
