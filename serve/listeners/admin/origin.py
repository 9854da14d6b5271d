"""Cross-site requests: a page of another site must change nothing here with a visitor's rights.

Browsers say where a request comes from, in `Sec-Fetch-Site` or `Origin`; pages cannot forge either.

| a request that changes something                  | passes                          |
|---------------------------------------------------|---------------------------------|
| `Sec-Fetch-Site` is there                         | if it is `same-origin` or `none` |
| only `Origin` is there                            | if it names our own `Host`       |
| neither, as command lines and programs send it    | if it shows no session           |

That holds without keys, too: on loopback every page in a local browser could reach the port.
"""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.core.errors import Forbidden
from serve.listeners.admin.sessions import COOKIE

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class SameOrigin:
    """Middleware that refuses what a page of another site asks; `explain` makes the answer."""

    def __init__(
        self, app: ASGIApp, *, explain: Callable[[Request, Exception], Awaitable[Response]]
    ) -> None:
        self._app = app
        self._explain = explain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] == "http" and scope["method"] not in _SAFE:
            request = Request(scope)
            if not _is_ours(request):
                error = Forbidden(
                    "the request comes from a page of another site",
                    why="such a page may not change anything here",
                    try_this="open this gateway's own pages",
                )
                answer = await self._explain(request, error)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_ours(request: Request) -> bool:
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    if origin is not None:
        return urlsplit(origin).netloc == request.headers.get("host", "")
    return COOKIE not in request.cookies
