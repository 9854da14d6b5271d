"""Sources of replicas over the admin API: how the control plane finds Tritons while it runs."""

from fastapi import APIRouter
from pydantic import BaseModel

from serve.admin.api.context import InControl
from serve.control.discovery import SourceStatus

router = APIRouter(tags=["replicas"])


class SourceView(BaseModel):
    """One discovery source: whether it responds, for how many seconds, and why not.

    `endpoints` is the number of Tritons that it lists, null before its first list. While it does
    not respond, its last list stays in force. `problems` are sentences about its list.
    """

    name: str
    up: bool
    seconds: float
    endpoints: int | None
    why: str
    problems: list[str]


@router.get("/api/discovery", summary="List the discovery sources")
async def list_sources(control: InControl) -> list[SourceView]:
    """Returns the state of each source of `--discover`, and nothing if all replicas were named at
    the start.
    """
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
