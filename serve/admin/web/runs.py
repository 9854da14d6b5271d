"""Tries that were made: the list, the page of each under its own link, and what to do with one."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Response

from serve.admin.api import contracts
from serve.admin.api import tries as api
from serve.admin.web.form_fields import Reason, as_asked
from serve.admin.web.page_templates import Visit, Visiting, go, page, segment
from serve.admin.web.results import sides_of, verdict_of
from serve.control.tries.records import Try
from serve.core.errors import Invalid

router = APIRouter(include_in_schema=False)
Short = Annotated[str, Form(max_length=1000)]


@router.get("/runs")
async def show_all(visit: Visiting, model: Annotated[str, Query(max_length=300)] = "") -> Response:
    """The newest first, of one model or of all."""
    found = await api.list_tries(visit.control, model, 100)
    return page(visit, "runs.html", runs=found, model=model)


@router.get("/runs/{identity}")
async def show(identity: str, visit: Visiting) -> Response:
    """One try."""
    one = await api.show_try(identity, visit.control)
    sides = [f"{side.side}={quote(side.asked, safe='')}" for side in one.sides]
    query = "&".join([*sides, f"via={'http' if one.via == 'http' else 'grpc'}", f"run={one.id}"])
    again = f"/try/{segment(one.model)}?{query}"
    return page(visit, "run.html", again=again, **await result_values(visit, one))


@router.get("/runs/{identity}/snippets")
async def show_snippets(identity: str, visit: Visiting) -> Response:
    """The same calls from a shell or a program."""
    one = await api.show_try(identity, visit.control)
    names: tuple[Literal["a", "b"], ...] = ("a", "b")
    found = [
        (name, name.upper(), await api.show_snippets(identity, visit.request, visit.control, name))
        for name, side in zip(names, one.sides, strict=False)
        if side.error is None
    ]
    return page(visit, "snippets.html", sides=found)


@router.post("/runs/{identity}/contract")
async def save_case(
    identity: str,
    visit: Visiting,
    side: Short = "a",
    name: Short = "",
    atol: Short = "",
    rtol: Short = "",
    top1: Short = "",
    reason: Reason = "",
) -> Response:
    """A side's answer becomes a golden case of its version."""
    body = contracts.CaseBody(
        side="b" if side == "b" else "a",
        name=name[:200],
        atol=_number(atol),
        rtol=_number(rtol),
        top1=1.0 if top1 else None,
    )
    case = await contracts.save_case(identity, body, visit.control, as_asked(visit, reason))
    one = await api.show_try(identity, visit.control)
    version = next((each.version for each in one.sides if each.side == body.side), "")
    return _said(
        visit,
        identity,
        f"Saved as “{case.name}”. Every replica must now reproduce this result.",
        f"/models/{segment(one.model)}/versions/{version}",
        f"Version {version} and its contract",
    )


@router.post("/runs/{identity}/dataset")
async def add_row(
    identity: str, visit: Visiting, dataset: Short = "", label: Short = ""
) -> Response:
    """The input becomes a row of a dataset."""
    body = api.DatasetBody(dataset=dataset.strip()[:200], label=label.strip())
    await api.add_row(identity, body, visit.control, visit.by)
    return _said(
        visit, identity, "Added.", f"/datasets/{segment(body.dataset)}", f"Dataset {body.dataset}"
    )


@router.post("/runs/{identity}/remove")
async def remove(identity: str, visit: Visiting) -> Response:
    """It is gone for everybody."""
    await api.remove_try(identity, visit.control, visit.by)
    return go("/runs", visit)


async def result_values(visit: Visit, one: Try) -> dict[str, Any]:
    """What the fragment of a result needs."""
    known = await visit.control.rows.names() if visit.has("evaluation") else None
    return {
        "run": one,
        "sides": sides_of(one),
        "verdict": verdict_of(one),
        "link": f"{visit.request.base_url}runs/{one.id}",
        "datasets": known,
    }


def _said(visit: Visit, identity: str, text: str, link: str, link_text: str) -> Response:
    if not visit.is_fragment:
        return go(link)
    return page(visit, "said.html", text=text, link=link, link_text=link_text)


def _number(text: str) -> float | None:
    """A tolerance; None where nothing is said."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e300:
        raise Invalid(
            f"'{text[:40]}' is not a valid tolerance", why="it must be 0 or more", try_this="0.001"
        )
    return value
