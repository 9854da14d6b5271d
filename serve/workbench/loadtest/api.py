"""Reports of load tests over the admin API: sent by the command, read by everybody who may."""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.admin.api.pages import PAGE_HEADERS
from serve.core.errors import Invalid
from serve.workbench.loadtest.reports.report import LoadReport
from serve.workbench.loadtest.stored_reports import LoadReportLine, LoadReports

_PATH = "/api/load/reports/{name}"

router = APIRouter(tags=["load tests"])
Name = Annotated[str, Path(max_length=200)]
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorBody}}


class LoadReportBody(BaseModel):
    """The `report.json` of `servegate load run`. The page is rendered from `runs`."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "format": 1,
                    "name": "20261122-101500-digits-smoke",
                    "title": "Smoke test of digits",
                    "scenario": "smoke",
                    "model": "digits",
                    "begun": "2026-11-22T10:15:00+00:00",
                    "command": "servegate load scenario smoke --model digits",
                    "findings": ["all responses were correct"],
                    "passed": True,
                    "sweep": None,
                    "machine": "2 cores",
                    "versions": {"servegate": "0.1"},
                    "runs": [],
                }
            ]
        },
    )
    format: int
    name: str = Field(max_length=200)
    title: str
    findings: list[str]
    passed: bool | None
    runs: list[dict[str, Any]]


class RatioView(BaseModel):
    """After ÷ before, with its 95 % interval. `name` is p50, p90, p99 or mean of the latency
    (seconds in `before` and `after`), `rate` (correct responses per second) or `right` (their share
    of all calls). `verdict` describes it; an interval that contains 1 shows no difference.
    """

    name: str
    ratio: float
    low: float
    high: float
    before: float
    after: float
    verdict: str


@router.post(
    "/api/load/reports",
    status_code=201,
    summary="Store a load report",
    responses={409: {"model": schemas.ErrorBody, "description": "A report with this name exists."}},
)
async def keep_report(
    body: LoadReportBody, request: Request, control: InControl, who: ByWhom
) -> LoadReportLine:
    """Stores the report unchanged. Its page is rendered for each request."""
    page = await asyncio.to_thread(_checked, body.model_dump())
    return await control.service(LoadReports).add(page, await request.body(), who.author)


@router.get("/api/load/reports", summary="List load reports")
async def list_reports(control: InControl) -> list[LoadReportLine]:
    """Returns the newest first."""
    return list(await control.service(LoadReports).all())


@router.get(_PATH, summary="Get a load report as JSON", responses=_UNKNOWN)
async def fetch_report(name: Name, control: InControl) -> Response:
    """Returns `report.json` unchanged."""
    return Response(await control.service(LoadReports).read(name), media_type="application/json")


@router.get(
    _PATH + "/report.html",
    summary="Show a load report",
    response_class=HTMLResponse,
    responses=_UNKNOWN,
)
async def read_report(name: Name, control: InControl) -> HTMLResponse:
    """Returns the report as one HTML page without scripts, rendered from the stored JSON."""
    data = await control.service(LoadReports).read(name)
    return HTMLResponse(await asyncio.to_thread(_drawn, data), headers=PAGE_HEADERS)


@router.get(_PATH + "/compare/{other}", summary="Compare two load reports", responses=_UNKNOWN)
async def compare_reports(name: Name, other: Name, control: InControl) -> list[RatioView]:
    """Returns the ratios other ÷ this of latencies, rate and correct responses, where both reports
    have them.
    """
    before, after = await _two(control, name, other)
    return await asyncio.to_thread(_ratios, before, after)


@router.get(
    _PATH + "/compare/{other}/report.html",
    summary="Show the comparison of two load reports",
    response_class=HTMLResponse,
    responses=_UNKNOWN,
)
async def read_comparison(name: Name, other: Name, control: InControl) -> HTMLResponse:
    """Returns one HTML page without scripts."""
    before, after = await _two(control, name, other)
    return HTMLResponse(await asyncio.to_thread(_compared, before, after), headers=PAGE_HEADERS)


@router.delete(_PATH, status_code=204, summary="Delete a load report", responses=_UNKNOWN)
async def remove_report(name: Name, control: InControl, who: ByWhom) -> Response:
    """Deletes the report for all users."""
    await control.service(LoadReports).remove(name)
    return Response(status_code=204)


async def _two(control: AdminContext, name: str, other: str) -> tuple[LoadReport, LoadReport]:
    before, after = [await control.service(LoadReports).read(one) for one in (name, other)]
    return await asyncio.to_thread(lambda: (_read(before), _read(after)))


def _read(data: bytes) -> LoadReport:
    return LoadReport.from_json(json.loads(data))


def _ratios(before: LoadReport, after: LoadReport) -> list[RatioView]:
    from serve.workbench.loadtest.reports.comparison import compare, verdict

    return [
        RatioView(**asdict(one), verdict=verdict(one)) for one in compare(before.runs, after.runs)
    ]


def _compared(before: LoadReport, after: LoadReport) -> str:
    from serve.workbench.loadtest.reports.comparison import compare
    from serve.workbench.loadtest.reports.page import render_comparison

    return render_comparison(before, after, compare(before.runs, after.runs))


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a report that can be read and drawn; `Invalid` for anything else."""
    report = LoadReport.from_json(body)
    _draw(report)
    return {
        "name": report.name,
        "title": report.title,
        "scenario": report.scenario,
        "model": report.model,
        "begun": report.begun,
        "passed": report.passed,
        "findings": report.findings,
    }


def _drawn(data: bytes) -> str:
    return _draw(_read(data))


def _draw(report: LoadReport) -> str:
    from serve.workbench.loadtest.reports.page import render

    try:
        return render(report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise Invalid("the load report cannot be drawn", why=repr(error)) from error
