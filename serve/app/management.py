"""The way from a worker to the control plane for Triton's management calls."""

import asyncio
import dataclasses
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from serve.app.internal_http import InternalConnection
from serve.core.errors import (
    BadRequest,
    DeadlineExceeded,
    FixedSetting,
    LoadFailed,
    ModelControlOff,
    NoControl,
    NotInRepository,
    NotServed,
    ServegateError,
    TritonFailed,
    Unavailable,
    UnreadableConfiguration,
)
from serve.wire.management import ManagementOrder

_SPARE = 2.0  # seconds that the control plane's own answer may take beyond what it waits
_KINDS: Mapping[str, type[ServegateError]] = {
    kind.code: kind
    for kind in (
        BadRequest,
        DeadlineExceeded,
        FixedSetting,
        LoadFailed,
        ModelControlOff,
        NotInRepository,
        NotServed,
        Unavailable,
        UnreadableConfiguration,
    )
} | {TritonFailed.code: BadRequest}  # a replica says what is wrong with a setting


class ControlManager:
    """Hands wishes on to the control plane behind `url`, as a worker of it."""

    def __init__(self, url: str, *, secret: str, trust: Callable[[], ssl.SSLContext]) -> None:
        self._url = url
        self._trust = trust  # of each https connection
        self._headers = {
            "authorization": f"Bearer {secret}",
            "content-type": "application/json",
        }

    def __repr__(self) -> str:
        return f"<ControlManager {self._url}>"

    async def manage(
        self, wish: ManagementOrder, *, author: str, within: float
    ) -> Mapping[str, Any]:
        """See `listeners.management.Manager`."""
        settings = dict(wish.settings)
        asked = {f.name: getattr(wish, f.name) for f in dataclasses.fields(wish)}
        body = json.dumps({**asked, "settings": settings, "author": author, "within": within})
        try:
            async with (
                asyncio.timeout(within + _SPARE),
                InternalConnection(self._url, trust=self._trust) as line,
            ):
                answer = await line.post("/internal/management", self._headers, body.encode())
                told = json.loads(answer.body)
        except (OSError, ValueError) as error:
            raise NoControl("the control plane does not respond", why=str(error)) from error
        if answer.status == 200:
            return dict(told.get("settings") or {})
        raise _error(told)


def _error(told: Any) -> ServegateError:
    """The error that the control plane raised, anew."""
    kind = _KINDS.get(told.get("code", ""), Unavailable)
    error = kind.__new__(kind)
    ServegateError.__init__(
        error, told.get("what", ""), why=told.get("why", ""), try_this=told.get("try_this", "")
    )
    return error
