"""The HTTP transport: one call to one Triton over a kept-open connection.

Bodies pass as the bytes they are: nothing is decompressed, no header is added, none is decoded.
"""

from collections.abc import Callable

from serve.core.calls import Call, Choice, Reply, Verb
from serve.core.replicas import Replica
from serve.triton.http_pool import Pool, request_head
from serve.wire import kserve_http


class HttpTransport:
    """Implements `core.calls.Transport` on a pool of connections. An async context manager."""

    def __init__(self, *, connect_timeout: float, clock: Callable[[], float]) -> None:
        self._pool = Pool(connect_timeout=connect_timeout, clock=clock)

    def __repr__(self) -> str:
        return f"<HttpTransport {self._pool!r}>"

    async def __aenter__(self) -> "HttpTransport":
        """Open the pool."""
        await self._pool.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close every connection."""
        await self._pool.__aexit__(*exc)

    async def send(self, call: Call, choice: Choice | None, replica: Replica) -> Reply:
        """See `core.calls.Transport`."""
        method = "POST" if call.verb is Verb.INFER else "GET"
        path = _path(call, choice)
        head = request_head(method, replica, path, call.headers, len(call.body))
        reply = await self._pool.send(replica, head, call.body, call.deadline)
        return Reply(reply.status, reply.body, kserve_http.end_to_end(reply.headers))


def _path(call: Call, choice: Choice | None) -> str:
    if choice is None:
        return kserve_http.upstream_path(call.verb, "", None)
    target = choice.target
    version = target.physical_version if choice.pinned else None
    return kserve_http.upstream_path(call.verb, target.physical_name, version)
