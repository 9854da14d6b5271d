"""What scenarios ask of the control plane, and do to it; each change says that a load test did."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx2

from serve.core.commands import addressed
from serve.core.errors import Invalid, NoControl, ServegateError
from serve.wire.admin_answers import error_of
from serve.workbench.loadtest.observer import LoadTarget

_PATIENCE = 90.0  # seconds: loading a model takes a while
_BACK = 120.0  # seconds to put everything back


class Admin:
    """The admin API of a target, inside of `async with`."""

    def __init__(self, target: LoadTarget, *, reason: str) -> None:
        if not target.admin_url:
            raise Invalid(
                "this scenario needs a gateway",
                why="it makes changes over the admin API, and a Triton without a gateway has none",
                try_this="use --admin-url URL",
            )
        self._model = quote(target.model, safe="")
        self._url = target.admin_url.rstrip("/")
        key = target.admin_key or target.key
        self._client = httpx2.AsyncClient(
            timeout=_PATIENCE,
            trust_env=False,
            verify=(target.trust or True) if self._url.startswith("https:") else False,
            headers={"servegate-author": "servegate load", "servegate-reason": quote(reason)}
            | ({"authorization": f"Bearer {key}"} if key else {}),
        )

    def __repr__(self) -> str:
        return f"<Admin {self._url}>"

    async def __aenter__(self) -> Admin:
        """Connects when it is first asked."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the connections go."""
        await self._client.aclose()

    def command(self, text: str) -> str:
        """A command as people have to type it for this gateway."""
        return addressed(text, admin=self._url)

    async def model(self) -> Mapping[str, Any]:
        """The model with its versions."""
        found: Mapping[str, Any] = await self._ask("GET", f"/api/models/{self._model}")
        return found

    async def route(self) -> Mapping[str, Any]:
        """The model's `split`, and whether somebody has set it: `routed`."""
        found: Mapping[str, Any] = await self._ask("GET", f"/api/routes/{self._model}")
        return found

    async def divide(self, split: Mapping[int, int]) -> int:
        """Divide the model's calls; the generation from which on they are divided so."""
        body = {"split": {str(version): weight for version, weight in split.items()}}
        done = await self._ask("PUT", f"/api/routes/{self._model}?wait=10", body)
        return int(done["generation"])

    async def load(self) -> None:
        """Load the model everywhere, and wait for it."""
        await self._ask("POST", f"/api/models/{self._model}/load?wait={_PATIENCE - 5:g}", {})

    async def unload(self) -> None:
        """Unload it everywhere."""
        await self._ask("POST", f"/api/models/{self._model}/unload?wait={_PATIENCE - 5:g}", {})

    async def replicas(self) -> list[Mapping[str, Any]]:
        """All replicas, without their own readings."""
        found: list[Mapping[str, Any]] = await self._ask("GET", "/api/replicas?readings=false")
        return found

    async def snapshot(self) -> Mapping[str, Any]:
        """What the workers serve by."""
        page: Mapping[str, Any] = await self._ask("GET", "/api/snapshot")
        found: Mapping[str, Any] = page["snapshot"]
        return found

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        try:
            answer = await self._client.request(method, self._url + path, json=body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NoControl(
                f"the control plane at {self._url} does not respond",
                why=str(error) or type(error).__name__,
                try_this="use --admin-url URL",
            ) from error
        if not answer.is_success:
            raise error_of(answer.status_code, answer.text)
        return answer.json()


@contextlib.asynccontextmanager
async def putting_back(
    do: Callable[[], Awaitable[object]], *, what: str, by_hand: str, say: Callable[[str], None]
) -> AsyncIterator[list[str]]:
    """Do it when the block is left, however it is left; the list has what then went wrong."""
    undone: list[str] = []
    try:
        yield undone
    finally:
        try:
            async with asyncio.timeout(_BACK):
                await do()
        except (ServegateError, TimeoutError) as error:
            why = str(error) or f"no result within {_BACK:g} s"
            undone.append(f"{what} could not be restored: {why}. Try: {by_hand}")
            say(undone[-1])
