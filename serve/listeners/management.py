"""Triton's management extensions on the data ports, when the operator has opened them.

What changes models or settings goes to the control plane, which answers when every replica is as
it should be. Shared memory is a matter between a caller and the one Triton on its machine: those
calls are passed on as they are, and only when there is no other replica.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from serve.core.access import Act
from serve.core.calls import Call, CallOrigin, Headers, Reply, Verb
from serve.core.errors import NotServed, ServegateError
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.services import Service, ServiceRequest, Unary
from serve.proxy.attempts import NOWHERE
from serve.proxy.gateway import Gateway
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_question import ask
from serve.triton.http_pool import Pool, header_lines, request_line
from serve.wire import management, management_grpc
from serve.wire.management import ManagementOrder
from serve.wire.origins import CrossSite, is_cross_site
from serve.wire.status import OK, code_name

_JSON: Headers = ((b"content-type", b"application/json"),)
_LARGEST = 1 << 26  # bytes of an answer about regions


class Manager(Protocol):
    """The way to the control plane."""

    async def manage(
        self, wish: ManagementOrder, *, author: str, within: float
    ) -> Mapping[str, Any]:
        """The settings that hold then; empty for load and unload. Errors as the control raised."""


class Management:
    """Answers management calls of both protocols; who may is decided here."""

    def __init__(self, gateway: Gateway, pool: Pool, grpc_pool: GrpcPool, manager: Manager) -> None:
        self._gateway = gateway
        self._pool = pool
        self._grpc_pool = grpc_pool
        self._manager = manager

    def __repr__(self) -> str:
        return f"<Management by {self._manager!r}>"

    def takes(self, method: str, raw_path: bytes) -> bool:
        """Whether this is a management path over HTTP; `MethodNotAllowed`."""
        return bool(management.read_path(method, raw_path))

    async def over_http(
        self,
        method: str,
        raw_path: bytes,
        body: bytes,
        *,
        headers: Headers,
        credential: bytes,
        deadline: float,
        origin: CallOrigin | None = None,
    ) -> Reply:
        """The answer to a request for a path that this `takes`. Errors of ours are raised."""
        said = headers if method == "POST" else ()  # others change nothing
        call = Call("http", Verb.MANAGEMENT, "", "", deadline, credential=credential, origin=origin)
        if management.read_path(method, raw_path) == "memory":
            lines = header_lines(((b"content-length", b"%d" % len(body)), *_JSON))

            async def fetch(replica: Replica) -> Reply:
                start = request_line(method, replica, raw_path.decode("latin-1"))
                return await self._pool.fetch(replica, start + lines + b"\r\n" + body, deadline)

            return await self._pass_on(call, said, fetch)
        wish = management.wish_of_http(method, raw_path, body)
        settings = await self._manage(replace(call, model=wish.model), said, wish)
        return Reply(200, management.settings_json(wish.act, settings) if settings else b"", _JSON)

    def services(self) -> dict[str, Service]:
        """The management methods, for the gRPC listener."""
        wishes: dict[str, Service] = {one: Unary(self._wish) for one in management_grpc.WISHES}
        return wishes | {one: Unary(self._memory) for one in management_grpc.MEMORY}

    async def _wish(self, asked: ServiceRequest) -> Reply:
        wish = management_grpc.of_grpc(asked.method, asked.message)
        settings = await self._manage(asked.call(Verb.MANAGEMENT, wish.model), asked.metadata, wish)
        return Reply(OK, management_grpc.settings_message(wish.act, settings))

    async def _memory(self, asked: ServiceRequest) -> Reply:
        async def put(replica: Replica) -> Reply:
            seconds = asked.deadline - self._gateway.clock()
            return await ask(
                self._grpc_pool,
                replica,
                asked.method,
                asked.message,
                seconds=seconds,
                limit=_LARGEST,
            )

        return await self._pass_on(asked.call(Verb.MANAGEMENT), asked.metadata, put)

    async def _manage(self, call: Call, said: Headers, wish: ManagementOrder) -> Mapping[str, Any]:
        """Have the control plane do it, for a caller who may."""
        gateway = self._gateway
        with self._counted(call, said) as (_, begun):
            key = gateway.key_of(call)
            author = f"key:{key.id}" if key else "a data port"
            within = max(call.deadline - begun, 0.1)
            settings = await self._manager.manage(wish, author=author, within=within)
        name = code_name(call.protocol, 200 if call.protocol == "http" else OK)
        gateway.ended(call, None, NOWHERE, name, begun, good=True)
        return settings

    async def _pass_on(
        self, call: Call, said: Headers, put: Callable[[Replica], Awaitable[Reply]]
    ) -> Reply:
        """What the one local Triton answers, for a caller who may."""
        with self._counted(call, said) as (snapshot, begun):
            reply = await put(_only_local(snapshot))
        name = code_name(call.protocol, reply.status)
        is_good = reply.status in (200, OK)
        self._gateway.ended(call, None, NOWHERE, name, begun, good=is_good)
        return reply

    @contextmanager
    def _counted(self, call: Call, said: Headers) -> Iterator[tuple[Snapshot, float]]:
        """The snapshot that the caller may manage, and the time; an error ends the call.

        `said` are the headers of a call that may change something: browsers state in them for which
        page they send it.
        """
        begun = self._gateway.clock()
        snapshot, _ = self._gateway.fleet(call, Act.MANAGE)
        try:
            if is_cross_site(said):
                raise CrossSite
            yield snapshot, begun
        except ServegateError as error:
            self._gateway.ended(call, None, NOWHERE, error.code, begun, error=error.code)
            raise


def _only_local(snapshot: Snapshot) -> Replica:
    replicas = tuple(snapshot.replicas.values())
    if len(replicas) == 1 and _is_local(replicas[0].host):
        return replicas[0]
    raise NotServed(
        "shared memory works only with a single local Triton",
        why=f"this gateway has {len(replicas)} replicas, and a region exists on one machine only",
        try_this="send tensors in the request",
    )


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
