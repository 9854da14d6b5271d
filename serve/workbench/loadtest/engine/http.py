"""A lane's calls over HTTP/1.1: its connections, and who may have one.

HTTP requests of a lane, put together once per payload: one send is head and body.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import gevent

from serve.core.errors import Invalid
from serve.trust import trust as trust_of_environment
from serve.workbench.loadtest.answer_checks import checker
from serve.workbench.loadtest.engine.http_connection import LoadHttpConnection
from serve.workbench.loadtest.engine.http_shared import Address, HttpLoadCall, Shared
from serve.workbench.loadtest.engine.senders import Done
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload
from serve.workbench.loadtest.record import NOT_CONNECTED

# --- hTTP requests of a lane, put together once per payload ---------------------------------------


_PATH = re.compile(r"/[\x21-\x7e]*\Z")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_OURS = frozenset(("host", "content-length", "transfer-encoding", "connection", "accept-encoding"))


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A payload's request: `start` is the head up to the empty line's end, `whole` with the body.

    The payload is kept, so that its identity stays its own.
    """

    payload: Payload
    body: bytes
    start: bytes
    whole: bytes


class LaneRequests:
    """The requests of a lane, by their payloads' identity. `Invalid` where no head can be made."""

    def __init__(self, lane: Lane) -> None:
        if not _PATH.match(lane.path):
            raise Invalid(
                f"the path {lane.path!r} of lane '{lane.name}' is not valid",
                why="a path starts with '/' and contains ASCII characters without spaces",
                try_this="percent-encode the path",
            )
        self._lane = lane
        self.known: dict[int, PreparedRequest] = {}
        for payload in lane.payloads:
            self.prepare(payload)

    def prepare(self, payload: Payload) -> PreparedRequest:
        """The payload's request, which is `known` from now on."""
        start = self._start(payload, len(payload.body))
        made = PreparedRequest(payload, payload.body, start, start + payload.body)
        self.known[id(payload)] = made
        return made

    def of(self, prepared: PreparedRequest, body: bytes) -> bytes:
        """The payload's request with another body."""
        if len(body) == len(prepared.body):
            return prepared.start + body
        return self._start(prepared.payload, len(body)) + body

    def _start(self, payload: Payload, length: int) -> bytes:
        lane = self._lane
        given = (*lane.headers, *payload.headers)
        names = {name.lower() for name, _ in given}
        fields = [("Host", lane.address), *given, ("Accept-Encoding", "identity")]
        if "content-type" not in names:
            binary = lane.protocol is LaneProtocol.HTTP_BINARY
            fields.append(("Content-Type", f"application/{'octet-stream' if binary else 'json'}"))
        fields.append(("Content-Length", str(length)))
        for name, value in fields:
            if not _NAME.match(name) or not _VALUE.match(value):
                raise _refused(
                    lane, name, "its name or value contains characters that headers do not allow"
                )
        if names & _OURS:
            raise _refused(lane, min(names & _OURS), "the load test sets it itself")
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return f"POST {lane.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


def _refused(lane: Lane, name: str, why: str) -> Invalid:
    return Invalid(
        f"lane '{lane.name}' cannot send the header {name!r}",
        why=why,
        try_this="leave out the header",
    )


# --- a lane's calls over HTTP/1.1 -----------------------------------------------------------------


class HttpSender:
    """Calls of one lane, at most `most` at once; the connection used last is used next."""

    def __init__(
        self, shared: Shared, requests: LaneRequests, *, most: int, timeout: float
    ) -> None:
        self._shared = shared
        self._requests = requests
        self._most = most
        self._timeout = timeout
        self._is_closed = False
        # What a call needs is one look-up away.
        self._idle, self._open = shared.idle, shared.open
        self._known = requests.known
        self._clock = shared.clock

    def __repr__(self) -> str:
        return f"<HttpSender {len(self._open)} open, {len(self._idle)} of them idle>"

    def send(self, payload: Payload, body: bytes, done: Done) -> bool:
        """See `Sender`. Without an idle connection the call waits for a new one."""
        idle = self._idle
        if not idle and len(self._open) >= self._most:
            return False
        prepared = self._known.get(id(payload)) or self._requests.prepare(payload)
        whole = prepared.whole if body is prepared.body else self._requests.of(prepared, body)
        deadline = self._clock() + self._timeout
        while idle:
            connection = idle.pop()
            if connection.begin(whole, payload, done, deadline):
                return True
            connection.close()
        shared = self._shared
        try:
            LoadHttpConnection(
                shared, HttpLoadCall(whole, payload, done, deadline), shared.addresses
            )
        except OSError:  # out of file descriptors, most likely
            shared.loop.run_callback(self._refuse, done)
        return True

    def sweep(self, now: float) -> None:
        """End the calls that are over their time."""
        for connection in tuple(self._open):
            if connection.deadline <= now and connection.is_busy:
                connection.expire(now)

    def close(self) -> None:
        """Close every connection. Calls in flight are not told any more."""
        self._is_closed = True
        for connection in tuple(self._open):
            connection.close()

    def _refuse(self, done: Done) -> None:
        if not self._is_closed:
            done(NOT_CONNECTED, "", self._clock())


def http_sender(
    lane: Lane,
    *,
    most: int,
    timeout: float,
    clock: Callable[[], float],
    trust: ssl.SSLContext | None = None,
) -> HttpSender:
    """The sender of an HTTP lane; `Invalid` where its address, path or headers cannot be used.

    `most`: connections. `timeout`: seconds for one call. `trust`: for a lane with TLS; without it
    the environment says whom to trust, see `serve/trust.py`.
    """
    host, addresses = resolved(lane.address)
    shared = Shared(
        loop=gevent.get_hub().loop,
        clock=clock,
        addresses=addresses,
        check=checker(lane),
        names_version=lane.protocol is not LaneProtocol.TFSERVING,
        tls=(trust or trust_of_environment()) if lane.tls else None,
        host=host,
    )
    return HttpSender(shared, LaneRequests(lane), most=most, timeout=timeout)


def resolved(address: str) -> tuple[str, tuple[Address, ...]]:
    """The host of host:port, and the addresses that it has."""
    parts = urlsplit(f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise Invalid(
            f"'{address}' is not an address",
            why="an address is a host and a port",
            try_this="use 127.0.0.1:8080, or [::1]:8080",
        )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Invalid(
            f"the host of '{address}' cannot be resolved",
            why=error.strerror or str(error),
            try_this="check the name, or use an IP address",
        ) from error
    return host, tuple((family, where) for family, _, _, _, where in found)
