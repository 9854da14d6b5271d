"""Bounds: how much of a request the admin API takes in, whoever sends it."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.core.errors import BodyTooLarge

LARGEST = 1 << 23  # bytes of a body; a model's configuration is the largest thing that is sent
LARGEST_TRY = 1 << 25  # bytes, where people give a photograph or a tensor, as base64
_TRY = re.compile(r"^/(?:api/tries|try/[^/]+)\Z")
_BLOB = re.compile(r"^/api/uploads/[^/]+/blobs/[^/]+\Z")
_DATASET = re.compile(r"^/api/datasets(?:/[^/]+)?\Z")


class Bounded:
    """Middleware that stops reading a body which is too large. Bodies are read before keys are.

    The bytes of a blob are bounded by the size that was announced for it, where they are written,
    piece by piece, and after the key is read; so are those of a dataset.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on, and count."""
        if _is_bounded_elsewhere(scope):
            await self._app(scope, receive, send)
            return
        most = left = LARGEST_TRY if _TRY.match(scope.get("path", "")) else LARGEST

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                error = BodyTooLarge(most)
                error.try_this = ""  # no setting moves this limit
                raise error
            return message

        await self._app(scope, counted, send)


def _is_bounded_elsewhere(scope: Scope) -> bool:
    method, path = scope.get("method"), scope.get("path", "")
    if method == "PATCH":
        return _BLOB.match(path) is not None
    return method in ("POST", "PUT") and _DATASET.match(path) is not None
