"""The way from a client's connection to the ASGI application, as uvicorn would have it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from serve.wire.request_ids import TOLD

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent, HTTPScope

Headers = list[tuple[bytes, bytes]]


class Cycle(RequestResponseCycle):
    """A request to the application. Its answer names the call, whoever it was that answered."""

    def __init__(self, *, request_id: Callable[[Headers], bytes], **options: Any) -> None:
        super().__init__(**options)
        self._request_id = request_id

    async def send(self, message: "ASGISendEvent") -> None:
        """A part of the answer."""
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            if all(name != TOLD for name, _ in headers):
                headers.append((TOLD, self._request_id(list(self.scope["headers"]))))
            message = {**message, "headers": headers}
        await super().send(message)


def cycle_of(
    protocol: HttpToolsProtocol,
    version: str,
    request_id: Callable[[Headers], bytes],
    *,
    keeps_alive: bool,
    expects: bool,
) -> Cycle:
    """A request whose head is complete, to be answered by the application.

    `expects` says whether its client waits to be told to send the body; `request_id` names the
    request where the application does not.
    """
    parsed = httptools.parse_url(protocol.url)
    scope = {
        "type": "http",
        "asgi": {"version": protocol.asgi_version, "spec_version": "2.3"},
        "http_version": version,
        "server": protocol.server,
        "client": protocol.client,
        "scheme": protocol.scheme,
        "method": protocol.parser.get_method().decode("ascii"),
        "root_path": protocol.root_path,
        "path": (parsed.path or b"").decode("latin-1"),
        "raw_path": parsed.path or b"",
        "query_string": parsed.query or b"",
        "headers": protocol.headers,
        "state": protocol.app_state.copy(),
    }
    return Cycle(
        request_id=request_id,
        scope=cast("HTTPScope", scope),
        transport=protocol.transport,
        flow=protocol.flow,
        logger=protocol.logger,
        access_logger=protocol.access_logger,
        access_log=False,
        default_headers=protocol.server_state.default_headers,
        message_event=asyncio.Event(),
        expect_100_continue=expects,
        keep_alive=keeps_alive,
        on_response=protocol.on_response_complete,
    )
