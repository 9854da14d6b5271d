"""What Triton counts of its executions in a measurement: by size, how many and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from serve.capacity.service import ExecutionPoint
from serve.core.errors import Invalid, ServegateError
from serve.workbench.loadtest.observed import Observed

Page = Mapping[str, Any]
_PATIENCE = 10.0  # seconds: a Triton under full load is slow to answer
_PARTS = ("compute_input", "compute_infer", "compute_output")


@dataclass(frozen=True, slots=True)
class Rises:
    """What was counted between two readings; `queue` is the mean of a request, in seconds."""

    points: tuple[ExecutionPoint, ...]
    queue: float


def rises(before: Page, after: Page) -> Rises:
    """Two `model_stats` of one version; what has fallen, since it was loaded anew, counts whole."""
    old = {int(row["batch_size"]): row for row in before.get("batch_stats", ())}
    points = []
    for row in after.get("batch_stats", ()):
        size = int(row["batch_size"])
        was, now = _row(old.get(size, {})), _row(row)
        count, taken = (now[0] - was[0], now[1] - was[1]) if now[0] >= was[0] else now
        if count > 0:
            points.append(ExecutionPoint(size, taken / count / 1e9, float(count)))
    was_queue, queue = (_pair(page, "queue") for page in (before, after))
    calls = queue[0] - was_queue[0]
    waited = (queue[1] - was_queue[1]) / calls / 1e9 if calls > 0 else 0.0
    return Rises(tuple(sorted(points, key=lambda point: point.rows)), max(0.0, waited))


def _row(row: Page) -> tuple[int, int]:
    """Executions of one size, and nanoseconds in all."""
    count = int(row.get("compute_infer", {}).get("count", 0))
    return count, sum(int(row.get(part, {}).get("ns", 0)) for part in _PARTS)


def _pair(page: Page, name: str) -> tuple[int, int]:
    part = page.get("inference_stats", {}).get(name, {})
    return int(part.get("count", 0)), int(part.get("ns", 0))


class Statistics:
    """One version's statistics in one Triton, over HTTP: begins and ends with a measurement.

    An `Observing` of `loadtest/observed_run.py`. `rises` is empty where Triton has not told.
    """

    def __init__(self, address: str, name: str, version: int) -> None:
        model = f"http://{address}/v2/models/{quote(name, safe='')}/versions/{version}"
        self._model = model
        self._before: Page = {}
        self.rises = Rises((), 0.0)

    def __repr__(self) -> str:
        return f"<Statistics {self._model}>"

    async def config(self) -> dict[str, Any]:
        """The configuration that is in force there; the error says that nobody answers."""
        page: dict[str, Any] = await self._ask("/config")
        return page

    async def begin(self) -> None:
        """The first reading."""
        self._before = await self._read()

    async def watch(self, since: float) -> None:
        """Nothing in between: the machine is measured."""

    async def end(self) -> Observed:
        """The second reading."""
        self.rises = rises(self._before, await self._read())
        return Observed()

    async def _read(self) -> Page:
        page = await self._ask("/stats")
        found: Page = page["model_stats"][0] if page.get("model_stats") else {}
        return found

    async def _ask(self, path: str) -> Any:
        try:
            async with httpx2.AsyncClient(timeout=_PATIENCE, trust_env=False) as client:
                answer = await client.get(self._model + path)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Invalid(
                "the Triton for the measurements cannot be reached from this machine",
                why=f"{self._model}: {str(error) or type(error).__name__}",
                try_this="run the command on the control plane's machine, or on one that can "
                "reach the replicas",
            ) from error
        if not answer.is_success:
            raise ServegateError(
                "the Triton for the measurements does not have the model",
                why=f"{self._model}: {answer.text[:200]}",
            )
        return answer.json()
