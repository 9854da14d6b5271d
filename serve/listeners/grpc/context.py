"""What every call of the gRPC listener needs, and the client's connection as calls see it."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from serve.core.calls import Choice
from serve.core.limits import Limits
from serve.core.replicas import Replica
from serve.listeners.grpc.services import Service
from serve.listeners.incomplete import Incomplete
from serve.proxy.gateway import Gateway
from serve.triton.grpc_connection import GrpcConnection
from serve.triton.grpc_pool import GrpcPool
from serve.wire import kserve_grpc, protobuf
from serve.wire.grpc_head_templates import RequestMemo
from serve.wire.grpc_heads import timeout_field
from serve.wire.grpc_requests import GrpcRequestReader, made_up_ids
from serve.wire.hpack_blocks import literal
from serve.wire.request_ids import fresh_ids

_REMEMBERED = 1024  # entries of a memo; a full one is emptied

Key = TypeVar("Key")
Value = TypeVar("Value")


class GrpcContext:
    """What every call of the listener needs: the gateway, the connections, the limits, the time."""

    def __init__(
        self,
        gateway: Gateway,
        pool: GrpcPool,
        *,
        limits: Limits,
        cancel: str,
        clock: Callable[[], float],
        is_draining: Callable[[], bool],
        services: Mapping[str, Service],
    ) -> None:
        self.gateway = gateway
        self.pool = pool
        self.board = pool.board
        self.limits = limits
        self.incomplete = Incomplete(limits.incomplete)
        self.clock = clock
        self.is_draining = is_draining
        self.services = services
        self.heads = RequestMemo(GrpcRequestReader(limits.head, kserve_grpc.OWN | services.keys()))
        self.words = fresh_ids()  # one for each connection
        self.longest = limits.call
        self.may_forward = cancel != "absorb"
        self.serves_sequences = gateway.serves_sequences
        self._cancel = cancel
        self._names: dict[int, tuple[Choice, bytes]] = {}
        self._decisions: dict[str, bytes] = {}

    def forwards_cancels(self, replica: Replica) -> bool:
        """Whether this replica is told that a client has gone or a deadline is near."""
        if self._cancel == "auto":
            return self.pool.survives_cancelling(replica)
        return self._cancel == "forward"

    def timeout(self, replica: Replica, deadline: float) -> bytes:
        """What is left of the deadline, for a replica that may be told."""
        if deadline == float("inf") or not self.forwards_cancels(replica):
            return b""
        return timeout_field(deadline - self.clock())

    def names(self, choice: Choice) -> bytes:
        """What is appended to a request, so that it names what Triton calls the version.

        For a version that is named always: a message could carry other names further behind.
        """
        known = self._names.get(id(choice))
        if known is not None and known[0] is choice:
            return known[1]
        target = choice.target
        name = protobuf.field(1, target.physical_name.encode())
        if choice.pinned:
            name += protobuf.field(2, str(target.physical_version).encode())
        elif target.physical_name == target.model:
            name = b""
        _remember(self._names, id(choice), (choice, name))
        return name

    def decision(self, text: str) -> bytes:
        """The trailer that says which version answered and why."""
        known = self._decisions.get(text)
        if known is None:
            known = literal(b"servegate-version", text.encode()) if text else b""
            _remember(self._decisions, text, known)
        return known


class ClientLink(GrpcConnection):
    """A client's connection, as its calls know it. `peer` is the client's address.

    `names` is the template of the names that its calls get when the client gives none: one word for
    the connection, and the number of the stream.
    """

    __slots__ = ("names", "peer")

    def __init__(self, context: GrpcContext) -> None:
        super().__init__(context.board, context.limits)
        self.names = made_up_ids(next(context.words))
        self.peer = ""


def _remember(memo: dict[Key, Value], key: Key, value: Value) -> None:
    if len(memo) >= _REMEMBERED:
        memo.clear()
    memo[key] = value
