"""Sources of replicas over the admin API: how the control plane finds Tritons while it runs."""

from fastapi import APIRouter
from pydantic import BaseModel

from serve.control.discovering import SourceStatus
from serve.listeners.admin.context import InControl

router = APIRouter(tags=["replicas"])


class SourceView(BaseModel):
    """One source: whether it answers, for how many seconds that has been so, and why it does not.

    `endpoints` is how many Tritons it names, null before its first list. What it named last stays
    in force while it does not answer. `problems` are sentences about what it names.
    """

    name: str
    up: bool
    seconds: float
    endpoints: int | None
    why: str
    problems: list[str]


@router.get("/api/discovery", summary="List where Tritons are found")
async def list_sources(control: InControl) -> list[SourceView]:
    """How each source is that `--discover` names; none where all replicas were named at start."""
    discovering = control.discovering
    return [_view(one) for one in discovering.sources] if discovering else []


def _view(status: SourceStatus) -> SourceView:
    return SourceView(
        name=status.name,
        up=status.is_up,
        seconds=status.seconds,
        endpoints=status.endpoints,
        why=status.why,
        problems=list(status.problems),
    )
