"""Cross-site requests to the admin port: see `wire.origins` for the rule.

A request that names no origin must not show a session either: every browser that keeps one states
where its requests come from. This holds without keys, too: on loopback every page in a local
browser could reach the port.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.admin.api.sessions import COOKIE
from serve.wire.origins import CrossSite, is_cross_site

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class SameOrigin:
    """Middleware that refuses changes by pages of other sites; `explain` makes the answer."""

    def __init__(
        self, app: ASGIApp, *, explain: Callable[[Request, Exception], Awaitable[Response]]
    ) -> None:
        self._app = app
        self._explain = explain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] == "http" and scope["method"] not in _SAFE:
            request = Request(scope)
            if _is_foreign(request):
                answer = await self._explain(request, CrossSite())
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_foreign(request: Request) -> bool:
    said = request.headers
    is_stated = "sec-fetch-site" in said or "origin" in said
    return is_cross_site(request.scope["headers"]) or (not is_stated and COOKIE in request.cookies)
