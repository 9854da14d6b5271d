"""A request over HTTP that is no predict call: its headers and body, and what is logged of it."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from serve.core.calls import Account, Headers
from serve.core.errors import BadRequest, BodyTooLarge, TooSlow

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

LARGEST = 1 << 20  # bytes of a body that asks or manages, and calls no model
_READ_OVER = 16 << 20  # bytes of a body that is refused


def peer_of(address: tuple[str, int] | None) -> str:
    """A client's address as the log writes it; empty for a socket that has none."""
    if address is None:
        return ""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class HttpRequest:
    """One request that is no predict call; the origin of its `Call`."""

    def __init__(self, scope: Scope, request_id: bytes) -> None:
        self.headers: Headers = tuple(scope["headers"])
        self.request_id = request_id
        self.received = self.answered = 0  # bytes of bodies
        self.upstream = 0.0  # seconds
        self._peer: tuple[str, int] | None = scope.get("client")

    def header(self, name: bytes) -> bytes:
        """A header by its name in lower case; several are joined, as RFC 9110 has it."""
        return b", ".join(value for key, value in self.headers if key == name)

    async def body(self, receive: Receive, *, within: float) -> bytes:
        """The whole body, within so many seconds; `BodyTooLarge` and `TooSlow`.

        What is too large is read over for a while: an answer to a client that is still sending may
        get lost.
        """
        try:
            async with asyncio.timeout(within):
                return await self._body(receive)
        except TimeoutError as error:
            raise TooSlow("the request body did not arrive in time", within) from error

    async def _body(self, receive: Receive) -> bytes:
        length = self.header(b"content-length")
        if self.header(b"expect") and length.isdigit() and int(length) > LARGEST:
            raise BodyTooLarge(LARGEST)  # before the client is told to send it
        pieces = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("the request body is not complete")
            self.received += len(message.get("body", b""))
            is_last = not message.get("more_body")
            if self.received <= LARGEST:
                pieces.append(message.get("body", b""))
                if is_last:
                    return b"".join(pieces)
            elif is_last or self.received > _READ_OVER:
                raise BodyTooLarge(LARGEST)

    def account(self) -> Account:
        """See `Origin`."""
        return Account(
            request_id=self.request_id.decode("latin-1"),
            traceparent=self.header(b"traceparent").decode("latin-1"),
            peer=peer_of(self._peer),
            received=self.received,
            answered=self.answered,
            upstream=self.upstream,
        )
