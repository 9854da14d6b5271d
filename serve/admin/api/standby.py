"""Standing by: a control plane that does not lead answers nothing but that it lives."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.core.errors import Unavailable

_ALWAYS = frozenset({"/livez", "/metrics"})
READY = "/readyz"


class Standby:
    """Middleware that refuses everything while this process does not lead, or is starting.

    `explain` makes the answer of an error.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        leads: Callable[[], bool],
        explain: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self._app = app
        self._leads = leads
        self._explain = explain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, answer `/readyz`, or refuse."""
        if scope["type"] != "http" or scope["path"] in _ALWAYS:
            await self._app(scope, receive, send)
        elif not self._leads():
            error = Unavailable(
                "this control plane is a standby",
                why="another one is the leader, or this one has just started",
                try_this="try again in a moment, or use the address of the leader",
            )
            answer = await self._explain(Request(scope), error)
            await answer(scope, receive, send)
        elif scope["path"] == READY:
            await JSONResponse({"leads": True})(scope, receive, send)
        else:
            await self._app(scope, receive, send)
