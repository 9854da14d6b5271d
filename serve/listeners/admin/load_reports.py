"""Reports of load tests over the admin API: sent by the command, read by everybody who may."""

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from serve.control.load_reports import LoadReportLine
from serve.core.errors import Invalid
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, InControl
from serve.listeners.admin.pages import PAGE_HEADERS
from serve.load.reporting.report import Report

_PATH = "/api/load/reports/{name}"

router = APIRouter(tags=["load tests"])
Name = Annotated[str, Path(max_length=200)]
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": schemas.ErrorBody}}


class LoadReportBody(BaseModel):
    """The `report.json` of `servegate load run`. Its `runs` are read by what draws them."""

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
                    "findings": ["every answer was right"],
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


@router.post(
    "/api/load/reports",
    status_code=201,
    summary="Keep a load report",
    responses={409: {"model": schemas.ErrorBody, "description": "its name is taken"}},
)
async def keep_report(
    body: LoadReportBody, request: Request, control: InControl, who: ByWhom
) -> LoadReportLine:
    """It is kept byte by byte, and drawn whenever somebody reads it."""
    page = await asyncio.to_thread(_checked, body.model_dump())
    return await control.load_reports.add(page, await request.body(), who.author)


@router.get("/api/load/reports", summary="List load reports")
async def list_reports(control: InControl) -> list[LoadReportLine]:
    """The newest first."""
    return list(await control.load_reports.all())


@router.get(_PATH, summary="Fetch a load report", responses=_UNKNOWN)
async def fetch_report(name: Name, control: InControl) -> Response:
    """`report.json`, as it was sent."""
    return Response(await control.load_reports.read(name), media_type="application/json")


@router.get(
    _PATH + "/report.html",
    summary="Read a load report",
    response_class=HTMLResponse,
    responses=_UNKNOWN,
)
async def read_report(name: Name, control: InControl) -> HTMLResponse:
    """The report for people, as one page without scripts. It is drawn anew from what was sent."""
    data = await control.load_reports.read(name)
    return HTMLResponse(await asyncio.to_thread(_drawn, data), headers=PAGE_HEADERS)


@router.delete(_PATH, status_code=204, summary="Remove a load report", responses=_UNKNOWN)
async def remove_report(name: Name, control: InControl, who: ByWhom) -> Response:
    """It is gone for everybody."""
    await control.load_reports.remove(name)
    return Response(status_code=204)


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a report that can be read and drawn; `Invalid` for anything else."""
    report = Report.from_json(body)
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
    return _draw(Report.from_json(json.loads(data)))


def _draw(report: Report) -> str:
    from serve.load.reporting.page import render

    try:
        return render(report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise Invalid("the load report cannot be drawn", why=repr(error)) from error
