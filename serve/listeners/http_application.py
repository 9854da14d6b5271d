"""The way from a client's connection to the ASGI application, as uvicorn would have it."""

import asyncio
from typing import TYPE_CHECKING, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope


def cycle_of(
    protocol: HttpToolsProtocol, version: str, *, keeps_alive: bool, expects: bool
) -> RequestResponseCycle:
    """A request whose head is complete, to be answered by the application.

    `expects` says whether its client waits to be told to send the body.
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
    return RequestResponseCycle(
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
