"""KServe v2 over gRPC: the data plane's gRPC listener, in HTTP/2 frames.

`connection` makes what `loop.create_server` wants; `sweep` is called every 100 ms and is the only
clock that calls and connections have; `drain` asks the clients to go, and `close` leaves them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from serve.core.limits import Limits
from serve.listeners.grpc.connection import GrpcClientConnection
from serve.listeners.grpc.context import GrpcContext
from serve.listeners.grpc.services import Service
from serve.proxy.gateway import Gateway
from serve.triton.grpc_pool import GrpcPool

_NONE: Mapping[str, Service] = MappingProxyType({})


class KServeGrpc:
    """The listener. `cancel`: whether Triton hears of cancelled calls; auto, forward or absorb.

    `services` are what else is answered on its port, by method paths: see `services`.
    """

    def __init__(
        self,
        gateway: Gateway,
        pool: GrpcPool,
        *,
        limits: Limits,
        cancel: str,
        clock: Callable[[], float],
        is_draining: Callable[[], bool],
        services: Mapping[str, Service] = _NONE,
    ) -> None:
        self._context = GrpcContext(
            gateway,
            pool,
            limits=limits,
            cancel=cancel,
            clock=clock,
            is_draining=is_draining,
            services=services,
        )
        self._clients: set[GrpcClientConnection] = set()

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
        return self._context.board.held

    @property
    def known_heads(self) -> int:
        """Header blocks that are remembered."""
        return len(self._context.heads.known)

    @property
    def is_idle(self) -> bool:
        """Whether no call is left."""
        return not any(client.streams for client in self._clients)

    def connection(self) -> GrpcClientConnection:
        """The protocol of a new connection."""
        return GrpcClientConnection(self._context, self._clients)

    def sweep(self) -> None:
        """Look at the clock, for all connections together."""
        now = self._context.clock()
        self._context.incomplete.turn()
        for client in tuple(self._clients):
            client.guarded(client.sweep, now)
        self._context.board.flush()

    def drain(self) -> None:
        """Ask all clients to go; calls in flight end as they would."""
        for client in tuple(self._clients):
            client.guarded(client.drain)
        self._context.board.flush()

    def close(self) -> None:
        """Abort every connection."""
        for client in tuple(self._clients):
            client.guarded(client.abort, "the gateway is stopping")
        self._context.board.flush()
