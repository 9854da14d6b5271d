"""The control plane as its own parent asks it: over the socket inside, with the shared secret.

What goes wrong is an `OSError`: the control plane is away, stands by, or answers what makes no
sense.
"""

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any

from serve.app.internal_http import INSIDE, InternalConnection, InternalResponse
from serve.app.paths import control_socket
from serve.app.secret import shared_secret
from serve.core.replicas import Replica
from serve.settings import Settings

_POLL = 40.0  # seconds; the control plane answers after 25 at the latest
_TOLD = 90.0  # seconds for a list of replicas to be answered, at most 60 of which it was asked for


class ControlLine:
    """Two connections: one waits for hints, one tells of replicas."""

    def __init__(self, settings: Settings) -> None:
        where = f"{INSIDE}{control_socket(settings)}"
        self._hints, self._members = InternalConnection(where), InternalConnection(where)
        self._headers = {"authorization": f"Bearer {shared_secret(settings)}"}

    def __repr__(self) -> str:
        return f"<ControlLine {self._hints!r}>"

    async def hints(self, after: int) -> tuple[int, list[dict[str, Any]]]:
        """Wait for a round of hints that is newer than `after`, as long as that takes."""
        while True:
            async with asyncio.timeout(_POLL):
                answer = await self._hints.get(f"/api/hints?after={after}", self._headers)
            if answer.status == 204:
                continue
            told = _read(answer)
            try:
                number = int(told["number"])
                hints = [dict(one) for one in told["hints"]]
            except (KeyError, TypeError, ValueError) as error:
                raise ConnectionError(f"the response has no valid hints: {error!r}") from error
            if number != after:
                return number, hints

    async def become(
        self,
        replicas: Collection[Replica],
        starting: Mapping[str, int],
        *,
        leaving: Collection[str],
        within: float,
    ) -> Mapping[str, float | None]:
        """Tell the whole list; gives those that are still on their way out, as `Membership` does.

        `within`: seconds to wait for those that are `leaving`.
        """
        body = {
            "replicas": [f"{one.name}={one.address}@{one.pool}" for one in replicas],
            "starting": dict(starting),
            "leaving": list(leaving),
            "within": within,
        }
        headers = {**self._headers, "content-type": "application/json"}
        async with asyncio.timeout(_TOLD):
            answer = await self._members.put(
                "/internal/replicas", headers, json.dumps(body).encode()
            )
        try:
            return dict(_read(answer)["leaving"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectionError(f"the response has no valid replicas: {error!r}") from error

    def close(self) -> None:
        """Close the connections."""
        self._hints.close()
        self._members.close()


def _read(answer: InternalResponse) -> Any:
    if answer.status != 200:
        raise ConnectionError(f"status {answer.status}: {answer.body[:500]!r}")
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise ConnectionError("the response is not JSON") from error
