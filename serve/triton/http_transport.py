"""The HTTP transport: one call to one Triton over a pool of kept-open connections.

Bodies pass as the bytes they are: nothing is decompressed, no header is added, none is decoded.
"""

from collections.abc import Callable

import aiohttp
from yarl import URL

from serve.core.calls import Call, Choice, Reply
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.wire import kserve_http

_NO_DEFAULTS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


class HttpTransport:
    """Implements `core.calls.Transport` with aiohttp. An async context manager."""

    def __init__(self, *, connect_timeout: float, clock: Callable[[], float]) -> None:
        self._connect_timeout = connect_timeout
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "HttpTransport":
        """Open the pool."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            auto_decompress=False,
            skip_auto_headers=_NO_DEFAULTS,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def send(self, call: Call, choice: Choice | None, replica: Replica) -> Reply:
        """See `core.calls.Transport`."""
        assert self._session is not None, "used outside its context"
        remaining = None if call.deadline is None else max(call.deadline - self._clock(), 0.001)
        headers = [(key.decode("latin-1"), _text(value)) for key, value in call.headers]
        is_infer = call.verb == "infer"
        try:
            async with self._session.request(
                "POST" if is_infer else "GET",
                URL(replica.http_url + _path(call, choice), encoded=True),
                data=call.body if is_infer else None,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=remaining, sock_connect=self._connect_timeout),
            ) as response:
                body = await response.read()
                raw = tuple((key.lower(), value) for key, value in response.raw_headers)
                return Reply(response.status, body, kserve_http.end_to_end(raw))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(f"replica {replica.name} cannot be reached", why=str(error)) from error
        except TimeoutError as error:
            raise DeadlineExceeded from error
        except aiohttp.ClientError as error:
            raise OutcomeUnknown(
                f"the connection to replica {replica.name} broke during the call",
                why=str(error) or type(error).__name__,
                try_this="the call again only if it may be executed twice",
            ) from error


def _text(value: bytes) -> str:
    """The library writes UTF-8; bytes that are none cannot pass through it as they are."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _path(call: Call, choice: Choice | None) -> str:
    if choice is None:
        return kserve_http.upstream_path(call.verb, "", None)
    target = choice.target
    version = target.physical_version if choice.pinned else None
    return kserve_http.upstream_path(call.verb, target.physical_name, version)
