"""Evaluations: the list, a form for a new one, and the page of each with its report and rows."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Query, Response

from serve.admin.api import models as models_api
from serve.admin.web.page_templates import Visit, Visiting, go, page, segment
from serve.admin.web.reused_inputs import link_to_row
from serve.admin.web.selectors import selectors_of, usual_sides
from serve.admin.web.sentences import p_text
from serve.core.errors import Invalid
from serve.workbench.evaluation.api import datasets as datasets_api
from serve.workbench.evaluation.api import evaluations as api
from serve.workbench.evaluation.api.views import EvaluationBody, EvaluationLine, EvaluationView
from serve.workbench.evaluation.results import Bucket
from serve.workbench.evaluation.web.report import bucket_text, report_of

router = APIRouter(include_in_schema=False)
ROWS = 60  # of a page of the gallery
_HEADLINES = 20  # evaluations of the list whose reports are read
_GOING = ("queued", "running")
Word = Annotated[str, Query(max_length=2000)]
Field = Annotated[str, Form(max_length=5000)]


def _chosen(
    bucket: Word = "", slice: Word = "", label: Word = "", predicted: Word = ""
) -> Mapping[str, str]:
    """Which rows somebody wants to see."""
    return {"bucket": bucket, "slice": slice, "label": label, "predicted": predicted}


Chosen = Annotated[Mapping[str, str], Depends(_chosen)]


@router.get("/evaluations")
async def show_all(visit: Visiting, model: Word = "", dataset: Word = "") -> Response:
    """The newest first, and what a new one asks."""
    found = [one for one in await api.list_evaluations(visit.control) if model in ("", one.model)]
    lines = [await _headline(visit, one) for one in found[:_HEADLINES]]
    lines += [(one, None) for one in found[_HEADLINES:]]
    models = await models_api.list_models(visit.control)
    names = [one.name for one in models]
    chosen = model if model in names or not names else names[0]
    return page(
        visit,
        "evaluations.html",
        evaluations=lines,
        model=model,
        models=names,
        chosen=chosen,
        datasets=await datasets_api.list_datasets(visit.control),
        dataset=dataset,
        **await _sides(visit, chosen if names else ""),
    )


@router.get("/evaluations/sides")
async def show_sides(visit: Visiting, model: Word = "") -> Response:
    """The versions of a model that a form can ask for."""
    return page(visit, "evaluation_sides.html", **await _sides(visit, model))


@router.post("/evaluations")
async def begin(
    visit: Visiting,
    model: Field = "",
    dataset: Field = "",
    a: Field = "",
    b: Field = "",
    via: Field = "http",
    concurrency: Field = "4",
    batch: Field = "1",
    limit: Field = "",
    output: Field = "",
    gates: Field = "",
) -> Response:
    """Queue one, and go to its page."""
    body = EvaluationBody(
        model=_short(model, "model"),
        dataset=_short(dataset, "dataset"),
        a=_short(a, "version"),
        b=_short(b, "version") or None,
        via="grpc" if via == "grpc" else "http",
        concurrency=_whole(concurrency, "concurrency", 64) or 4,
        batch=_whole(batch, "number of rows per call", 1024) or 1,
        limit=_whole(limit, "row limit", 10**9),
        output=_short(output, "output") or None,
        gates=[_short(line, "gate") for line in gates.splitlines()[:51] if line.strip()],
    )
    begun = await api.begin_evaluation(body, visit.control, visit.by)
    return go(f"/evaluations/{begun.id}", visit)


@router.get("/evaluations/{identity}")
async def show(
    identity: str,
    visit: Visiting,
    chosen: Chosen,
    start: Annotated[int, Query(alias="from", ge=0)] = 0,
) -> Response:
    """One evaluation: how far it is, its report, and rows."""
    values = await _report(visit, identity)
    return page(
        visit, "evaluation.html", **values, **await _gallery(visit, values["one"], chosen, start)
    )


@router.get("/evaluations/{identity}/report")
async def show_report(identity: str, visit: Visiting) -> Response:
    """The part of the page that changes while it runs."""
    values = await _report(visit, identity)
    return page(
        visit, "evaluation_report.html", **values, **await _gallery(visit, values["one"], {})
    )


@router.get("/evaluations/{identity}/classes")
async def show_classes(identity: str, visit: Visiting) -> Response:
    """Everything by class, which is much where there are many."""
    return page(visit, "evaluation_classes.html", **await _report(visit, identity))


@router.get("/evaluations/{identity}/rows")
async def show_rows(
    identity: str,
    visit: Visiting,
    chosen: Chosen,
    start: Annotated[int, Query(alias="from", ge=0)] = 0,
) -> Response:
    """A page of rows, in the place of the one before."""
    values = await _report(visit, identity)
    gallery = await _gallery(visit, values["one"], chosen, start)
    here = f"/evaluations/{segment(identity)}{gallery['query'](start)}"
    return page(visit, "gallery.html", headers={"hx-push-url": _header(here)}, **values, **gallery)


@router.post("/evaluations/{identity}/cancel")
async def cancel(identity: str, visit: Visiting) -> Response:
    """What was found stays."""
    await api.cancel_evaluation(identity, visit.control, visit.by)
    return go(f"/evaluations/{segment(identity)}", visit)


@router.post("/evaluations/{identity}/resume")
async def resume(identity: str, visit: Visiting) -> Response:
    """It goes on with what has no answer yet."""
    await api.resume_evaluation(identity, visit.control, visit.by)
    return go(f"/evaluations/{segment(identity)}", visit)


@router.post("/evaluations/{identity}/remove")
async def remove(identity: str, visit: Visiting) -> Response:
    """It is gone for everybody."""
    await api.remove_evaluation(identity, visit.control, visit.by)
    return go("/evaluations", visit)


async def _report(visit: Visit, identity: str) -> dict[str, Any]:
    one: EvaluationView = await api.show_evaluation(identity, visit.control)
    return {"one": one, "report": report_of(one.report), "going": one.state in _GOING}


async def _gallery(
    visit: Visit, one: EvaluationView, chosen: Mapping[str, str], start: int = 0
) -> dict[str, Any]:
    """A page of rows; `query` makes the query of another page, or of another choice."""
    kept = {key: value for key, value in chosen.items() if value}
    bucket = _bucket(kept.get("bucket", ""))
    found = await api.list_results(
        one.id,
        visit.control,
        bucket,
        [kept["slice"]] if "slice" in kept else [],
        kept.get("label", ""),
        kept.get("predicted", ""),
        start,
        ROWS,
    )

    def query(at: int = 0, **other: str) -> str:
        words = {key: value for key, value in {**kept, **other}.items() if value}
        text = urlencode({**words, **({"from": at} if at else {})})
        return f"?{text}" if text else ""

    def link(row: int) -> str:
        b = "" if one.b is None else str(one.b)
        return link_to_row(one.model, str(one.a), b, one.dataset, row, one.revision)

    return {
        "rows": found.rows,
        "total": found.total,
        "start": start,
        "size": ROWS,
        "chosen": kept,
        "query": query,
        "link": link,
        "bucket_text": bucket_text,
        "p_text": p_text,
    }


async def _headline(
    visit: Visit, one: EvaluationLine
) -> tuple[EvaluationLine, Mapping[str, Any] | None]:
    return one, (await api.show_evaluation(one.id, visit.control)).report


async def _sides(visit: Visit, model: str) -> dict[str, Any]:
    if not model:
        return {"selectors": [], "side_a": "", "side_b": ""}
    told = await models_api.show_model(model, visit.control, Response())
    a, b = usual_sides(told, visit.control.models.main_version(model))
    selectors = [one for one in selectors_of(told) if one[0]]
    return {"selectors": selectors, "side_a": a, "side_b": b or ""}


def _bucket(text: str) -> Bucket | None:
    try:
        return Bucket(text) if text else None
    except ValueError as error:
        known = ", ".join(one.value for one in Bucket)
        raise Invalid(
            f"there is no bucket '{text[:40]}'", why=f"the buckets are {known}"
        ) from error


def _short(text: str, what: str) -> str:
    if len(text.strip()) > 200:
        raise Invalid(f"the {what} is too long", why="at most 200 characters are allowed")
    return text.strip()


def _whole(text: str, what: str, most: int) -> int | None:
    """A whole number of a field, None where it is empty."""
    if not text.strip():
        return None
    if not (text.strip().isascii() and text.strip().isdigit() and 1 <= int(text[:12]) <= most):
        raise Invalid(
            f"'{text[:40]}' is not a valid {what}",
            why=f"it must be a whole number from 1 to {most}",
        )
    return int(text)


def _header(text: str) -> str:
    """A path as a header carries it: `urlencode` and `segment` leave nothing but ASCII."""
    return text.encode("ascii", "replace").decode()
