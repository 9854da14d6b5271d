"""KServe v2 over gRPC: the data plane's gRPC listener, in HTTP/2 frames.

`connection` makes what `loop.create_server` wants; `sweep` is called every 100 ms and is the only
clock that calls and connections have; `drain` asks the clients to go, and `close` leaves them.
"""

from collections.abc import Callable

from serve.core.limits import Limits
from serve.listeners.grpc_call import Desk
from serve.listeners.grpc_client import GrpcClient
from serve.proxy.gateway import Gateway
from serve.triton.grpc_pool import GrpcPool


class KServeGrpc:
    """The listener. `cancel`: whether Triton hears of cancelled calls; auto, forward or absorb."""

    def __init__(
        self,
        gateway: Gateway,
        pool: GrpcPool,
        *,
        limits: Limits,
        cancel: str,
        clock: Callable[[], float],
        is_draining: Callable[[], bool],
    ) -> None:
        self._desk = Desk(
            gateway, pool, limits=limits, cancel=cancel, clock=clock, is_draining=is_draining
        )
        self._clients: set[GrpcClient] = set()

    def __repr__(self) -> str:
        return f"<KServeGrpc connections={self.connections} calls={self.calls}>"

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._clients)

    @property
    def calls(self) -> int:
        """Calls on them that have not ended."""
        return sum(len(client.streams) for client in self._clients)

    @property
    def held(self) -> int:
        """Bytes of bodies that wait here or are kept for a repeat."""
        return self._desk.board.held

    @property
    def is_idle(self) -> bool:
        """Whether no call is left."""
        return not any(client.streams for client in self._clients)

    def connection(self) -> GrpcClient:
        """The protocol of a new connection."""
        is_welcome = len(self._clients) < self._desk.limits.connections
        client = GrpcClient(self._desk, is_welcome=is_welcome, on_gone=self._clients.discard)
        self._clients.add(client)
        return client

    def sweep(self) -> None:
        """Look at the clock, for all connections together."""
        now = self._desk.clock()
        for client in tuple(self._clients):
            client.sweep(now)
        self._desk.board.flush()

    def drain(self) -> None:
        """Ask all clients to go; calls in flight end as they would."""
        for client in self._clients:
            client.drain()
        self._desk.board.flush()

    def close(self) -> None:
        """Abort every connection."""
        for client in tuple(self._clients):
            client.abort("the gateway stops")
        self._desk.board.flush()
