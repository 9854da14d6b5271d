"""HTTP requests of a lane, put together once per payload: one send is head and body."""

from __future__ import annotations

import re
from dataclasses import dataclass

from serve.core.errors import Invalid
from serve.load.plan import Lane, LaneProtocol, Payload

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
