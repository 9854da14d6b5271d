"""Questions to the other side of a run: each has a short time of its own, and none ever raises."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

PATIENCE = 2.0  # seconds for an answer


@dataclass(slots=True)
class _Tally:
    asked: int = 0
    failed: int = 0
    why: str = ""


class Questions:
    """GETs on kept connections; one origin that is asked one at a time sees one connection.

    `trust` says which certificates are believed; None is the system's list.
    """

    def __init__(self, *urls: str, trust: ssl.SSLContext | None = None) -> None:
        has_tls = any(url.lower().startswith("https:") for url in urls)
        self._client = httpx2.AsyncClient(
            timeout=PATIENCE,
            trust_env=False,
            verify=(trust or True) if has_tls else False,
            limits=httpx2.Limits(keepalive_expiry=None),
        )
        self._tallies: dict[str, _Tally] = {}

    def __repr__(self) -> str:
        return f"<Questions to {', '.join(self._tallies) or 'nobody yet'}>"

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each address that did not always give a good answer."""
        return tuple(
            f"{tally.failed} of {tally.asked} requests to {address} failed: {tally.why}"
            for address, tally in self._tallies.items()
            if tally.failed
        )

    async def text(self, url: str, key: str = "") -> str | None:
        """The text of a good answer; `key` is shown as a bearer token."""
        answer = await self._ask(url, key)
        return None if answer is None else answer.text

    async def json(self, url: str, key: str = "") -> Any:
        """The JSON of a good answer; None for none."""
        answer = await self._ask(url, key)
        try:
            return None if answer is None else answer.json()
        except ValueError:
            self._failed(url, "the response is not JSON")
            return None

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    async def _ask(self, url: str, key: str) -> httpx2.Response | None:
        self._tally(url).asked += 1
        headers: Mapping[str, str] = {"authorization": f"Bearer {key}"} if key else {}
        try:
            answer = await self._client.get(url, headers=headers)
            if answer.is_success:
                return answer
            self._failed(url, f"status {answer.status_code}")
        except httpx2.TimeoutException:
            self._failed(url, f"no response within {PATIENCE:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            self._failed(url, str(error) or type(error).__name__)
        return None

    def _failed(self, url: str, why: str) -> None:
        tally = self._tally(url)
        tally.failed += 1
        tally.why = why

    def _tally(self, url: str) -> _Tally:
        return self._tallies.setdefault(url.partition("?")[0], _Tally())
