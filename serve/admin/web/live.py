"""The Live page: what the fleet does now. The numbers come by `/api/live/events`."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.admin.web import page_templates
from serve.admin.web.page_templates import Visiting

router = APIRouter(include_in_schema=False)
MINUTES = (1, 2, 5, 10)  # how much of the past can be looked at


@router.get("/live")
async def page(
    visit: Visiting,
    model: Annotated[str, Query(max_length=300)] = "",
    minutes: Annotated[int, Query(ge=1, le=10)] = 5,
) -> Response:
    """The page; `model` is the one whose numbers are shown, all of them when it is empty."""
    names = sorted({one.model.name for one in visit.control.models.all()} | {model} - {""})
    return page_templates.page(
        visit, "live.html", names=names, chosen=model, minutes=minutes, spans=MINUTES
    )
