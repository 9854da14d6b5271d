"""Triton's management calls, as workers hand them on from their callers."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from serve.admin.api.context import InControl, worker_only
from serve.control.models import By

router = APIRouter()


class ManagementRequest(BaseModel):
    """What a caller asked Triton for. `within` are seconds."""

    act: Literal["load", "unload", "trace", "logging"]
    model: Annotated[str, Field(max_length=1024)] = ""
    config: str | None = None
    dependents: bool = False
    settings: dict[str, Any] = {}
    author: Annotated[str, Field(max_length=200)] = "anonymous"
    within: Annotated[float, Field(gt=0, le=3600)] = 300.0


@router.post("/internal/management", include_in_schema=False, dependencies=[Depends(worker_only)])
async def manage(wish: ManagementRequest, control: InControl) -> dict[str, Any]:
    """Answer when it is so on every replica: with the settings that hold, or nothing."""
    by, manager = By(wish.author, "a management call"), control.management
    if wish.act == "load":
        await manager.load(wish.model, wish.config, by, wish.within)
    elif wish.act == "unload":
        await manager.unload(wish.model, by, wish.within, dependents=wish.dependents)
    else:
        held = await manager.change(wish.act, wish.model, wish.settings, by, wish.within)
        return {"settings": dict(held)}
    return {}
