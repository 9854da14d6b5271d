"""The page on which versions are tried: its form, and what becomes of what people give.

Forms with files, as browsers send them.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from serve.admin.api import models as api
from serve.admin.api.bounds import LARGEST_TRY
from serve.admin.api.features import ReusedInput
from serve.admin.web.input_fields import ALL, TITLES, InputField, fields_of, given_of, together
from serve.admin.web.page_templates import Visit, Visiting, go, page, segment
from serve.admin.web.reused_inputs import again_of, offered_again
from serve.admin.web.runs import result_values
from serve.admin.web.selectors import ready_of, selectors_of, usual_sides
from serve.control.tries.desk import Takes
from serve.control.tries.examples import Example
from serve.control.tries.requests import Offered, TryRequest
from serve.core.errors import Invalid

# --- forms with files, as browsers send them ------------------------------------------------------


_LARGEST_TEXT = LARGEST_TRY  # bytes of a field: bodies are bounded before
_MOST = 1000  # fields, and as many files


@asynccontextmanager
async def form_of(request: Request) -> AsyncIterator[FormData]:
    """The fields and files of a form; `Invalid` for what is none."""
    try:
        form = await request.form(max_files=_MOST, max_fields=_MOST, max_part_size=_LARGEST_TEXT)
    except HTTPException as error:
        raise Invalid("the form cannot be read", why=str(error.detail)) from error
    try:
        yield form
    finally:
        await form.close()


# --- the page on which versions are tried ---------------------------------------------------------


NONE = "-"  # of side B: nothing to compare with; no label is called so

router = APIRouter(include_in_schema=False)
Word = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True, slots=True)
class ExampleChoice:
    """An example that can be chosen: what the form sends, and a path of its picture, or empty."""

    value: str
    name: str
    picture: str


@router.get("/try")
async def choose(visit: Visiting) -> Response:
    """Every model; straight on where there is one."""
    found = await api.list_models(visit.control)
    if len(found) == 1:
        return go(f"/try/{segment(found[0].name)}", visit)
    return page(visit, "try_choose.html", models=[(one, ready_of(one)) for one in found])


@router.get("/try/{model}")
async def show(
    model: str,
    visit: Visiting,
    a: Word | None = None,
    b: Word | None = None,
    via: Word = "http",
    run: Word = "",
    dataset: Word = "",
    row: Word = "",
    revision: Word = "",
) -> Response:
    """The form. Without sides in the link, the newest version is compared with what serves now."""
    told = await api.show_model(model, visit.control, Response())
    first, second = a or "", b if b != NONE else None
    if a is None and b is None:
        first, second = usual_sides(told, visit.control.models.main_version(model))
    again = await again_of(visit.control, run, dataset, row, revision)
    return page(
        visit,
        "try.html",
        selectors=selectors_of(told, (first, second or "")),
        a=first,
        b=NONE if second is None else second,
        via=via,
        **await _fields(visit, model, (first, second), again),
    )


@router.get("/try/{model}/fields")
async def show_fields(
    model: str, visit: Visiting, a: Word = "", b: Word = NONE, known: Word = ""
) -> Response:
    """The fields of other versions; nothing where they are the same, so that input stays."""
    values = await _fields(visit, model, (a, b if b != NONE else None), None)
    if values["known"] == known:
        return Response(status_code=204)
    return page(visit, "try_fields.html", **values)


@router.post("/try/{model}")
async def run(model: str, visit: Visiting) -> Response:
    """Call the versions, keep the try, and show it."""
    async with form_of(visit.request) as form:
        a, b = str(form.get("a", "")), str(form.get("b", NONE))
        takes = await visit.control.tries.takes(model, a)
        if form.get(f"form-{ALL}") == "again":
            offered = await offered_again(visit.control, form, takes, model)
        else:
            offered = await _offered(form, takes)
        ask = TryRequest(
            model,
            a,
            offered,
            None if b == NONE else b,
            "grpc" if form.get("via") == "grpc" else "http",
            _whole(form, "batch", 1, 1024),
            _whole(form, "top_k", 1, 100) or 5,
            _whole(form, "seed", 0, 1 << 53),
        )
    made = await visit.control.tries.tries.make(ask, visit.by.author)
    path = f"/runs/{made.id}"
    if not visit.is_fragment:
        return go(path)
    values = await result_values(visit, made)
    return page(visit, "run_result.html", headers={"hx-push-url": path}, **values)


async def _fields(
    visit: Visit, model: str, sides: tuple[str, str | None], again: ReusedInput | None
) -> dict[str, Any]:
    """What the templates of the form need: what A takes, and the examples of both."""
    takes = await visit.control.tries.takes(model, sides[0])
    examples = await _examples(visit, model, sides)
    fields = fields_of(
        takes.metadata.inputs,
        takes.preprocessing,
        examples=bool(examples),
        optional=takes.optional,
    )
    return {
        "fields": fields,
        "together": together(fields, examples=bool(examples), again=again is not None),
        "examples": examples,
        "again": again,
        "known": _digest(fields, examples),
        "titles": TITLES,
        "model": model,
    }


async def _examples(visit: Visit, model: str, sides: tuple[str, str | None]) -> list[ExampleChoice]:
    """Of the versions of both sides, each once."""
    status = visit.control.models.get(model)
    labels, known = status.labels, {one.number for one in status.versions}
    main = visit.control.models.main_version(model)
    numbers = [labels.get(one, main if one == "" else None) for one in sides if one is not None]
    numbers += [int(one) for one in sides if one and one.isascii() and one.isdigit()]
    found: dict[str, Example] = {}
    for number in dict.fromkeys(numbers):
        if number in known:
            for one in await visit.control.tries.examples.all(model, number):
                found.setdefault(one.id, one)
    return [_choice(model, one) for one in found.values()]


def _choice(model: str, one: Example) -> ExampleChoice:
    path = f"/api/models/{segment(model)}/examples/{segment(one.id)}.png"
    picture = path if any(line.preview for line in one.inputs) else ""
    return ExampleChoice(one.id, f"{one.name or 'unnamed'} (version {one.version})", picture)


async def _offered(form: FormData, takes: Takes) -> dict[str, Offered]:
    given = await given_of(form, list(takes.metadata.inputs))
    return {
        name: Offered(kind, b"", data.decode()) if kind == "example" else Offered(kind, data, said)
        for name, (kind, data, said) in given.items()
    }


def _digest(fields: Sequence[InputField], examples: Sequence[ExampleChoice]) -> str:
    text = json.dumps([repr(fields), repr(examples)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _whole(form: FormData, name: str, least: int, most: int) -> int | None:
    """A whole number of a field, None where it is empty."""
    text = next((str(one).strip() for one in form.getlist(name) if str(one).strip()), "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18 and least <= int(text) <= most):
        raise Invalid(
            f"'{text[:40]}' is not a valid value of '{name}'",
            why=f"it must be a whole number from {least} to {most}",
        )
    return int(text)
