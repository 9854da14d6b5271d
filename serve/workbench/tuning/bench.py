"""A bench of the control plane, as the one who measures there has it: opened, changed, kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from serve.core.errors import NoControl, NotFound, ServegateError
from serve.wire.admin_answers import error_of

KEEPING = 15.0  # seconds between two questions that keep it
LOADING = 660.0  # seconds for a change: two loads, the second for the fields before


class LoadBench:
    """One bench, open. `address` is that of its gRPC port, `http` that of the other."""

    def __init__(self, client: httpx2.AsyncClient, page: Mapping[str, Any]) -> None:
        self._client = client
        self._path = f"/api/benches/{page['id']}"
        self._lost: ServegateError | None = None
        self.name = str(page["name"])
        self.version = int(page["version"])
        self.http = str(page["http"])
        self.address = str(page["grpc"])

    def __repr__(self) -> str:
        return f"<LoadBench {self._path} of {self.name}>"

    async def load(self, fields: Mapping[str, Any]) -> None:
        """Run with these fields from now on; the error says why they do not load.

        After that error those before are in force, unless the bench has ended: `NotFound`.
        """
        self.require()
        await ask(self._client, "PUT", self._path, {"fields": dict(fields)}, patience=LOADING)

    def require(self) -> None:
        """Raise why the bench has ended, if it has."""
        if self._lost is not None:
            raise self._lost

    async def keep(self) -> None:
        """Ask for it again and again; what ends it is raised by the next `require`."""
        while True:
            await asyncio.sleep(KEEPING)
            try:
                await ask(self._client, "GET", self._path)
            except NotFound as error:
                self._lost = error
                return
            except ServegateError:
                continue  # a control plane that starts again may say more

    async def close(self) -> None:
        """Let everything be as before; a bench that has ended has done so."""
        with contextlib.suppress(NotFound):
            await ask(self._client, "DELETE", self._path, patience=LOADING)


@contextlib.asynccontextmanager
async def opened(
    client: httpx2.AsyncClient,
    model: str,
    number: int,
    fields: Mapping[str, Any],
    replica: str,
) -> AsyncIterator[LoadBench]:
    """A bench for as long as the block lasts; on `replica`, or in a Triton of its own."""
    path = f"/api/models/{quote(model, safe='')}/versions/{number}/benches"
    body = {"fields": dict(fields), "replica": replica}
    bench = LoadBench(client, await ask(client, "POST", path, body, patience=LOADING))
    keeping = asyncio.create_task(bench.keep())
    try:
        yield bench
    finally:
        keeping.cancel()
        await asyncio.shield(bench.close())


async def ask(
    client: httpx2.AsyncClient, method: str, path: str, body: Any = None, *, patience: float = 30.0
) -> Any:
    """The JSON that is answered, None for nothing; errors are those that the server raised."""
    try:
        answer = await client.request(method, path, json=body, timeout=patience)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NoControl(
            f"the control plane at {client.base_url} does not respond",
            why=str(error) or type(error).__name__,
            try_this="use --admin-url URL",
        ) from error
    if not answer.is_success:
        raise error_of(answer.status_code, answer.text)
    return answer.json() if answer.content else None
