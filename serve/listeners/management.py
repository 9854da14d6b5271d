"""Triton's management extensions on the data ports, when the operator has opened them.

What changes models or settings goes to the control plane, which answers when every replica is as
it should be. Shared memory is a matter between a caller and the one Triton on its machine: those
calls are passed on as they are, and only when there is no other replica.
"""

import ipaddress
import json
from collections.abc import Mapping
from typing import Any, Protocol

from serve.core.access import Act
from serve.core.calls import Call, Headers, Origin, Reply, Verb
from serve.core.errors import NotServed, ServegateError
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.services import Asked, Service, Unary
from serve.proxy.attempts import NOWHERE
from serve.proxy.gateway import Gateway
from serve.triton.http_pool import Pool, header_lines, request_line
from serve.wire import management, management_grpc
from serve.wire.management import MemoryWish, Wish
from serve.wire.status import OK, grpc_of_http

_JSON: Headers = ((b"content-type", b"application/json"),)


class Manager(Protocol):
    """The way to the control plane."""

    async def manage(self, wish: Wish, *, author: str, within: float) -> Mapping[str, Any]:
        """The settings that hold then; empty for load and unload. Errors as the control raised."""


class Management:
    """Answers management calls of both protocols; who may is decided here."""

    def __init__(self, gateway: Gateway, pool: Pool, manager: Manager) -> None:
        self._gateway = gateway
        self._pool = pool
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
        credential: bytes,
        deadline: float,
        origin: Origin | None = None,
    ) -> Reply:
        """The answer to a request for a path that this `takes`. Errors of ours are raised."""
        wish: Wish | MemoryWish
        if management.read_path(method, raw_path) == "wish":
            wish = management.wish_of_http(method, raw_path, body)
        else:
            wish = management.memory_of_http(method, raw_path, body)
        verb, model = Verb.MANAGEMENT, _model(wish)
        call = Call("http", verb, model, "", deadline, credential=credential, origin=origin)
        told = await self._do(call, wish)
        if isinstance(told, Reply):
            return told
        assert isinstance(wish, Wish)
        text = management.settings_json(wish.act, told) if told else b""
        return Reply(200, text, _JSON)

    def services(self) -> dict[str, Service]:
        """The management methods, for the gRPC listener."""
        return {method: Unary(self._over_grpc) for method in management_grpc.GRPC_METHODS}

    async def _over_grpc(self, asked: Asked) -> Reply:
        wish = management_grpc.of_grpc(asked.method, asked.message)
        told = await self._do(asked.call(Verb.MANAGEMENT, _model(wish)), wish)
        if isinstance(wish, Wish):
            assert not isinstance(told, Reply)
            return Reply(OK, management_grpc.settings_message(wish.act, told))
        assert isinstance(told, Reply)
        if told.status != 200:
            return Reply(grpc_of_http(told.status), b"", (), _sentence(told.body))
        kind = "cuda" if "/cuda" in wish.path else "system"
        return Reply(
            OK, management_grpc.regions_message(kind, told.body) if wish.is_status else b""
        )

    async def _do(self, call: Call, wish: Wish | MemoryWish) -> Reply | Mapping[str, Any]:
        """Do it for somebody who may; counted and logged like every call."""
        gateway, begun = self._gateway, self._gateway.clock()
        snapshot, _ = gateway.fleet(call, Act.MANAGE)
        status = 200 if call.protocol == "http" else OK
        try:
            if isinstance(wish, MemoryWish):
                reply = await self._ask_local(_only_local(snapshot), wish, call.deadline)
                good = reply.status == 200
                gateway.ended(call, None, NOWHERE, str(reply.status), begun, good=good)
                return reply
            key = gateway.key_of(call)
            author = f"key:{key.id}" if key else "a data port"
            within = max(call.deadline - begun, 0.1)
            told = await self._manager.manage(wish, author=author, within=within)
        except ServegateError as error:
            gateway.ended(call, None, NOWHERE, error.code, begun, error=error.code)
            raise
        gateway.ended(call, None, NOWHERE, str(status), begun, good=True)
        return told

    async def _ask_local(self, replica: Replica, wish: MemoryWish, deadline: float) -> Reply:
        lines = header_lines(((b"content-length", b"%d" % len(wish.body)), *_JSON))
        head = request_line(wish.method, replica, wish.path) + lines + b"\r\n"
        return await self._pool.fetch(replica, head + wish.body, deadline)


def _model(wish: Wish | MemoryWish) -> str:
    return wish.model if isinstance(wish, Wish) else ""


def _only_local(snapshot: Snapshot) -> Replica:
    replicas = tuple(snapshot.replicas.values())
    if len(replicas) == 1 and _is_local(replicas[0].host):
        return replicas[0]
    raise NotServed(
        "shared memory is served in front of one local Triton only",
        why=f"this gateway has {len(replicas)} replicas, and a region lives on one machine",
        try_this="tensors in the request",
    )


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sentence(body: bytes) -> str:
    """What Triton says in an error's body."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")
