"""Load tests: the reports that are kept, one of them, and two held against each other."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.admin.web.form_fields import as_asked
from serve.admin.web.page_templates import Visiting, go, page
from serve.core.errors import Invalid, NotFound
from serve.workbench.loadtest import api
from serve.workbench.loadtest.stored_reports import LoadReports

router = APIRouter(include_in_schema=False)
Name = Annotated[str, Query(max_length=200)]


@router.get("/loadtests")
async def show_all(visit: Visiting) -> Response:
    """The newest first."""
    reports = await api.list_reports(visit.control)
    return page(visit, "loadtests.html", reports=reports)


@router.get("/loadtests/compare")
async def compare(visit: Visiting, a: Name = "", b: Name = "") -> Response:
    """Two reports; `a` was before."""
    if not a or not b or a == b:
        raise Invalid("a comparison needs two different load tests", try_this="/loadtests")
    for name in (a, b):
        await visit.control.service(LoadReports).read(name)
    return page(visit, "loadtests_compared.html", a=a, b=b)


@router.get("/loadtests/{name}")
async def show_one(name: str, visit: Visiting) -> Response:
    """The report, as a page within the page."""
    reports = await api.list_reports(visit.control)
    line = next((one for one in reports if one.name == name), None)
    if line is None:
        raise NotFound(f"there is no load report '{name[:200]}'", try_this="/loadtests")
    others = [one for one in reports if one.name != name and one.model == line.model]
    return page(visit, "loadtest.html", report=line, others=others)


@router.post("/loadtests/{name}/remove")
async def remove(name: str, visit: Visiting) -> Response:
    """It is gone for everybody."""
    await api.remove_report(name, visit.control, as_asked(visit))
    return go("/loadtests", visit)
