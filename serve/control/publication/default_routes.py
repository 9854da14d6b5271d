"""Holding: publishing a version moves no calls, so what serves by default is written down first.

A model without a route serves its newest version. Before another one may come, the route gets what
serves now; from then on people decide.
"""

from collections.abc import Callable

from serve.control.decisions import ROUTE
from serve.control.models import By
from serve.control.publication.records import SERVEGATE, Records
from serve.core.errors import PreconditionFailed


class DefaultRoutes:
    """Keeps the calls of a model where they are. `serving_now` gives the version they go to."""

    def __init__(self, records: Records, serving_now: Callable[[str], int | None]) -> None:
        self._records = records
        self._serving_now = serving_now

    def __repr__(self) -> str:
        return f"<DefaultRoutes {self._records}>"

    async def hold(self, model: str, newcomer: int) -> None:
        """Pin what serves now, before this version comes; nothing where there is a route."""
        serving = self._serving_now(model)
        if serving in (None, newcomer) or self._records.decisions.split(model) is not None:
            return
        reason = f"traffic stays on version {serving} while version {newcomer} is published"
        try:
            await self._records.set(
                ROUTE, model, {"split": {str(serving): 100}}, By(SERVEGATE, reason)
            )
        except PreconditionFailed:
            pass  # somebody has just set one
