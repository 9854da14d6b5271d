"""Workers tell for which models calls wait, because their pool has been scaled to zero.

It wants the workers' shared secret, and is no part of the API for people.
"""

from collections.abc import Callable, Iterable
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api.context import worker_only


class Awaited(BaseModel):
    """The models, by their names."""

    model_config = ConfigDict(extra="forbid")

    models: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=300)]],
        Field(min_length=1, max_length=10_000),
    ]


def waking_router(wake: Callable[[Iterable[str]], None]) -> APIRouter:
    """The route of one control plane; `wake` decides at once what their pools should have."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(worker_only)])

    @router.post("/internal/waking", status_code=204)
    async def wake_models(awaited: Awaited) -> None:
        wake(frozenset(awaited.models))

    return router
