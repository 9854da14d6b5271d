"""Serving: uvicorn as one part of a process that has its own signals."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serve.core.errors import BadRequest
from serve.wire.kserve_http import not_http, without_upgrade
from serve.wire.status import http_error


class Http11Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol, which goes on with HTTP/1.1 when a client offers an upgrade.

    RFC 9110 lets a server ignore `Upgrade`; llhttp stops there, so the request is read anew without
    it. Java's HttpClient offers h2c with every first request.
    """

    def on_headers_complete(self) -> None:
        """Begin a request, unless it offers an upgrade and will be read again."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body of a request that has begun."""
        if not self.parser.should_upgrade():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request that has begun."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Parse what has come; a request that offers an upgrade is parsed again without it."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            method = self.parser.get_method()
            if method == b"CONNECT":
                self.send_400_response("the method CONNECT is not supported")
                return
            version = self.parser.get_http_version().encode()
            line = b"%b %b HTTP/%b\r\n" % (method, self.url, version)
            head = b"".join(b"%b: %b\r\n" % pair for pair in without_upgrade(self.headers))
            self.parser = httptools.HttpRequestParser(self)
            self.data_received(line + head + b"\r\n" + data[offer.args[0] :])
        except httptools.HttpParserError as error:
            self.send_400_response(str(not_http(str(error))))

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed is refused in the shape of every other error, and cut off."""
        reply = http_error(BadRequest(msg))
        head = b"".join(b"%b: %b\r\n" % pair for pair in reply.headers)
        length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(reply.body)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + length + reply.body)
        self.transport.close()


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signals to its process, and speaks TLS with a given context.

    `handshake` is how many seconds a TLS handshake may take.
    """

    def __init__(
        self,
        app: Any,
        *,
        protocol: Any = Http11Protocol,
        tls: ssl.SSLContext | None = None,
        handshake: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                date_header=False,
                interface="asgi3",
                proxy_headers=False,
                http=protocol,
                ws="none",
                **options,
            )
        )
        self._tls = tls
        self._handshake = handshake

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn would make a context from files, and wait a minute for a handshake."""
        loop, config = asyncio.get_running_loop(), self.config
        make: Any = config.http_protocol_class
        protocol = partial(
            make,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        options: dict[str, Any] = {"backlog": config.backlog}
        if self._tls is not None:
            options |= {"ssl": self._tls, "ssl_handshake_timeout": self._handshake}
        if sockets is None:
            self.servers = [await loop.create_server(protocol, config.host, config.port, **options)]
        else:
            self.servers = []
            for one in sockets:
                is_unix = one.family == socket.AF_UNIX
                create: Any = loop.create_unix_server if is_unix else loop.create_server
                self.servers.append(await create(protocol, sock=one, **options))
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not this server's business."""
        yield
