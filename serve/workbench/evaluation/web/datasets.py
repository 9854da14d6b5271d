"""Datasets: the list, a form that uploads one, and the page of each with its rows."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.admin.api import models as models_api
from serve.admin.web.page_templates import Visiting, go, page
from serve.admin.web.reused_inputs import link_to_row
from serve.workbench.evaluation.api import datasets as api

router = APIRouter(include_in_schema=False)
ROWS = 60  # of a page of rows
Revision = Annotated[int | None, Query(ge=1)]
Start = Annotated[int, Query(alias="from", ge=0)]


@router.get("/datasets")
async def show_all(visit: Visiting) -> Response:
    """Every dataset, and the form for a new one."""
    return page(visit, "datasets.html", datasets=await api.list_datasets(visit.control))


@router.get("/datasets/{name}")
async def show(name: str, visit: Visiting, revision: Revision = None, start: Start = 0) -> Response:
    """What a dataset holds, and a page of its rows; for htmx the rows alone."""
    one = await api.show_dataset(name, visit.control, revision)
    found = await api.list_rows(name, visit.control, one.revision, start, ROWS)
    models = [model.name for model in await models_api.list_models(visit.control)]

    def link(row: int) -> str:
        return link_to_row(models[0], "", "", name, row, one.revision) if len(models) == 1 else ""

    most = max(one.classes.values(), default=1)
    return page(
        visit,
        "dataset_rows.html" if visit.is_fragment else "dataset.html",
        one=one,
        rows=found.rows,
        total=found.total,
        start=start,
        size=ROWS,
        models=models,
        link=link,
        classes=[(text, count, count / most) for text, count in sorted(one.classes.items())],
    )


@router.post("/datasets/{name}/remove")
async def remove(name: str, visit: Visiting) -> Response:
    """It is gone for everybody, with all its revisions."""
    await api.remove_dataset(name, visit.control, visit.by)
    return go("/datasets", visit)
