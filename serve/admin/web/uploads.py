"""Uploading a version from a browser; the work is done by `upload.js` over the admin API."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.admin.web.page_templates import Visiting, page

router = APIRouter(include_in_schema=False)


@router.get("/upload")
async def show(visit: Visiting, model: Annotated[str, Query(max_length=300)] = "") -> Response:
    """The form; `model` is proposed as the name."""
    names = [status.model.name for status in visit.control.models.all()]
    return page(visit, "upload.html", model=model, models=names, publishes=visit.control.publishes)
