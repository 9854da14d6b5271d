"""The agent's line to its control plane: what is wanted, what is here, and blobs."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import aiohttp

from serve.control.deliveries.agents import AgentReport, Page
from serve.control.deliveries.version_folder import to_the_end
from serve.core.errors import NoControl, Unauthenticated
from serve.core.versions import VersionFile

T = TypeVar("T")
_CONNECT, _SILENCE, _POLL = 5.0, 60.0, 40.0  # seconds; the control plane answers a poll after 25
_PIECE = 1 << 20  # bytes


class SyncLine:
    """One agent's way to the admin API at `url`; alive inside of `async with`.

    Every call raises `NoControl` when nobody answers as a control plane would, and
    `Unauthenticated` when the secret is not the control plane's.
    """

    def __init__(
        self, url: str, *, replica: str, secret: str, trust: Callable[[], ssl.SSLContext]
    ) -> None:
        self._url = url.rstrip("/")
        self._replica = replica
        self._headers = {"authorization": f"Bearer {secret}"}
        self._trust = trust
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession

    def __repr__(self) -> str:
        return f"<SyncLine {self._url} replica={self._replica}>"

    async def __aenter__(self) -> "SyncLine":
        secure = self._url.startswith("https:")
        connector = aiohttp.TCPConnector(ssl=self._trust() if secure else True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE)
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=connector, headers=self._headers, timeout=timeout, auto_decompress=False
            )
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def wanted(self, have: str) -> Page | None:
        """The page, as soon as it is another than `have`; None after a while."""
        return await self._telling(self._wanted(have))

    async def delivered(self, page: str, report: AgentReport) -> bool:
        """Report what is here; False when the page is not the latest any more."""
        return await self._telling(self._delivered(page, report))

    async def fetch(self, file: VersionFile, target: Path) -> None:
        """Bring a blob to a path; goes on where an earlier transfer ended."""
        await self._telling(self._fetch(file, target))

    async def _wanted(self, have: str) -> Page | None:
        asked = {"replica": self._replica, "have": have}
        async with (
            asyncio.timeout(_POLL),
            self._session.get(f"{self._url}/internal/wanted", params=asked) as answer,
        ):
            if answer.status == 204:
                return None
            _require(answer, 200)
            return Page.from_json(await answer.json())

    async def _delivered(self, page: str, report: AgentReport) -> bool:
        body = {
            "replica": self._replica,
            "page": page,
            "slots": sorted(report.slots),
            "problems": [
                {"slot": slot, "why": why[:2000]} for slot, why in sorted(report.problems.items())
            ],
        }
        async with (
            asyncio.timeout(_CONNECT),
            self._session.post(f"{self._url}/internal/delivered", json=body) as answer,
        ):
            _require(answer, 200)
            return bool((await answer.json())["believed"])

    async def _fetch(self, file: VersionFile, target: Path) -> None:
        with target.open("ab") as part:
            start = part.tell()
            if start >= file.size:
                part.truncate(start := 0 if start > file.size else start)
            if start == file.size:
                return
            headers = {"range": f"bytes={start}-"} if start else {}
            url = f"{self._url}/internal/blobs/{file.sha256}"
            async with self._session.get(url, headers=headers) as answer:
                _require(answer, 206 if start and answer.status != 200 else 200)
                if answer.status == 200:  # something in between does not know ranges
                    part.truncate(0)
                async for piece in answer.content.iter_chunked(_PIECE):
                    await to_the_end(part.write, piece)

    async def _telling(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except (aiohttp.ClientError, ConnectionError, TimeoutError, json.JSONDecodeError) as error:
            why = str(error) or "the request timed out"
            raise NoControl(f"{self._url} does not respond", why=why) from error


def _require(answer: aiohttp.ClientResponse, status: int) -> None:
    if answer.status == status:
        return
    if answer.status == 404 and "wanted" in answer.url.path:
        raise Unauthenticated(
            "the control plane does not know this agent",
            why="the secret differs, or the control plane's setting 'delivery' is not 'agents'",
            try_this="set SERVEGATE_SECRET to the secret of the control plane",
        )
    raise NoControl(f"{answer.url.path} returned status {answer.status}", why=answer.reason or "")
