"""The page *Batching* of a version: its configuration, the measurements, and the form to change it.

Only the measurements are refreshed, so that the user's input is never lost. Every response returns
the form with the user's input and the result of the change.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Response

from serve.admin.api.batching import BatchingView, show_batching
from serve.admin.api.configurations import ConfigurationDiff, LineView
from serve.admin.api.serving_configurations import (
    FieldsBody,
    FindingView,
    ServingConfigurationView,
    put_serving_configuration,
    show_serving_configuration,
)
from serve.admin.web import batching_form, batching_rows
from serve.admin.web.batching_form import CALLED, Typed
from serve.admin.web.form_fields import IfMatch, Reason, as_asked
from serve.admin.web.page_templates import Visit, Visiting, go, page, segment
from serve.admin.web.versions import folded
from serve.control.configurations import compared
from serve.control.history import Revision
from serve.control.revision import CONFIGURATION
from serve.core.errors import CheckFailed, Invalid, PreconditionFailed, ServegateError
from serve.triton.canonical import canonical_text
from serve.triton.config import parse
from serve.triton.config_revisions import revised
from serve.wire.status import http_status

# --- the form of the page *Batching* on its way ---------------------------------------------------


_LONGEST = 1000  # characters of a reason


@dataclass(frozen=True, slots=True)
class FormResult:
    """What came of a form. `lines` are what would differ, None where that was not asked.

    `is_stale`: nothing was changed, because another user changed the configuration in the
    meantime. `is_news`: no change was requested.
    """

    trouble: ServegateError | None = None
    lines: Sequence[Any] | None = None
    findings: Sequence[FindingView] = ()
    is_stale: bool = False
    is_news: bool = False

    @property
    def wrong(self) -> Sequence[str]:
        """What a check found, a sentence each."""
        return self.trouble.findings if isinstance(self.trouble, CheckFailed) else ()


@dataclass(frozen=True, slots=True)
class Sheet:
    """The form as it is filled in. `shown` is what its fields say of the configuration now."""

    typed: Typed
    shown: Typed
    etag: str
    reason: str = ""
    watch: str = ""
    answer: FormResult = field(default_factory=FormResult)

    @property
    def seen(self) -> str:
        """What comes back with it, so that it is known which fields were touched."""
        return json.dumps(self.shown)

    @property
    def touched(self) -> frozenset[str]:
        """The fields that differ from what is so now."""
        return frozenset(name for name in CALLED if self.typed[name] != self.shown[name])


async def asked(visit: Visit, model: str, number: int) -> tuple[ServingConfigurationView, Sheet]:
    """The configuration of a version, overlaid with the user's input for the state `etag`."""
    served = await show_serving_configuration(model, number, visit.control, Response())
    form = await visit.request.form()
    now = batching_form.shown(parse(served.config))
    typed, seen = batching_form.typed_of(form), batching_form.seen_of(form, now)
    etag = str(form.get("if_match", "")) or served.etag
    reason, watch = (str(form.get(name, ""))[:_LONGEST] for name in ("reason", "watch"))
    return served, Sheet(batching_form.merged(typed, seen, now), now, etag, reason, watch)


def wanted(served: ServingConfigurationView, sheet: Sheet) -> dict[str, Any]:
    """The fields to send; `Invalid` for what cannot be."""
    base, present = parse(served.base), parse(served.config)
    return batching_form.wanted(base, present, sheet.typed, sheet.shown)


def config_with(served: ServingConfigurationView, fields: Mapping[str, Any]) -> str:
    """The text of config.pbtxt with these fields instead of those that are changed now."""
    return canonical_text(revised(parse(served.base), fields))


def difference(old: str, new: str) -> Sequence[Any]:
    """The lines that differ, with some around them; none when none does."""
    lines = [
        LineView(sign=line.sign, text=line.text, old=line.old, new=line.new)
        for line in compared(old, new)
    ]
    if all(line.sign == " " for line in lines):
        return []
    return folded(ConfigurationDiff(model="", old=0, new=0, same=False, lines=lines))


# --- how a version is batched ---------------------------------------------------------------------


router = APIRouter(include_in_schema=False)
_PATH = "/models/{model}/versions/{number}/batching"


@router.get(_PATH)
async def show(model: str, number: int, visit: Visiting) -> Response:
    """The page; fields of the form may be named in the query, as advice does."""
    view = await show_batching(model, number, visit.control)
    served, why_not = await _served(visit, model, number)
    sheet = None
    if served is not None:
        shown = batching_form.shown(parse(served.config))
        query = visit.request.query_params
        named = {name: query[name][:100] for name in CALLED if name in query and name != "json"}
        sheet = Sheet(shown | named, shown, served.etag)
    return await _page(visit, view, served, sheet, why_not)


@router.get(_PATH + "/seen")
async def show_seen(
    model: str,
    number: int,
    visit: Visiting,
    etag: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """What was measured; and what the configuration means, where that has changed."""
    view = await show_batching(model, number, visit.control)
    served, _ = await _served(visit, model, number)
    return page(
        visit,
        "batching_seen.html",
        **_seen(view, served),
        is_changed=served is not None and served.etag != etag,
    )


@router.get(_PATH + "/progress")
async def show_progress(
    model: str,
    number: int,
    visit: Visiting,
    mark: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """How far the newest change is; nothing where that is what the page shows already."""
    served = await show_serving_configuration(model, number, visit.control, Response())
    found = batching_rows.progress(served.change)
    if found is None or found.mark == mark:
        return Response(status_code=204)
    return page(visit, "batching_progress.html", served=served, progress=found, has_ended=True)


@router.post(_PATH + "/form")
async def renew_form(model: str, number: int, visit: Visiting) -> Response:
    """The form, with what was typed, over the configuration as it is now."""
    served, sheet = await asked(visit, model, number)
    is_news = sheet.etag != served.etag and bool(sheet.touched)
    return await _form(visit, served, replace(sheet, answer=FormResult(is_news=is_news)))


@router.post(_PATH + "/check")
async def check(model: str, number: int, visit: Visiting) -> Response:
    """What would differ, and what lint says of it; nothing is changed."""
    served, sheet = await asked(visit, model, number)
    try:
        fields = wanted(served, sheet)
        who = as_asked(visit, if_match=sheet.etag)
        found = await put_serving_configuration(
            *(model, number, FieldsBody(fields=fields), visit.control, who, Response()),
            dry_run=True,
        )
    except ServegateError as error:
        return await _troubled(visit, served, sheet, error)
    answer = FormResult(lines=difference(served.config, found.config), findings=found.findings)
    return await _form(visit, served, replace(sheet, answer=answer))


@router.post(_PATH + "/apply")
async def apply(model: str, number: int, visit: Visiting) -> Response:
    """It begins; the page tells how far it is."""
    served, sheet = await asked(visit, model, number)
    try:
        body = FieldsBody(fields=wanted(served, sheet))
        if config_with(served, body.fields) == served.config:
            raise Invalid("there is nothing to change", why="all fields have their current values")
        watch = batching_form.seconds_of(sheet.watch)
        who = as_asked(visit, sheet.reason, sheet.etag)
        await put_serving_configuration(
            *(model, number, body, visit.control, who, Response()),
            dry_run=False,
            watch=watch,
            wait=False,
        )
    except ServegateError as error:
        return await _troubled(visit, served, sheet, error)
    return go(_path(model, number), visit)


@router.get(_PATH + "/back")
async def ask_back(
    model: str, number: int, visit: Visiting, to: Annotated[str, Query(max_length=10)] = ""
) -> Response:
    """What going back would change: to what was before, or, `own`, to what it came with."""
    served = await show_serving_configuration(model, number, visit.control, Response())
    body, one = await _former(visit, served, to)
    lines = difference(served.config, config_with(served, body.fields))
    return page(visit, "batching_back.html", served=served, revision=one, to=to, lines=lines)


@router.post(_PATH + "/back")
async def go_back(
    model: str,
    number: int,
    visit: Visiting,
    to: Annotated[str, Form(max_length=10)] = "",
    reason: Reason = "",
    if_match: IfMatch = "",
) -> Response:
    """Go back, unless it was changed since the question was shown."""
    served = await show_serving_configuration(model, number, visit.control, Response())
    body, _ = await _former(visit, served, to)
    who = as_asked(visit, reason, if_match)
    try:
        await put_serving_configuration(
            *(model, number, body, visit.control, who, Response()),
            dry_run=False,
            watch=0.0,
            wait=False,
        )
    except PreconditionFailed:
        return go(_path(model, number, "?changed=1"), visit)
    return go(_path(model, number), visit)


async def _served(
    visit: Visit, model: str, number: int
) -> tuple[ServingConfigurationView | None, ServegateError | None]:
    """How it is run, or why nobody can change that."""
    try:
        served = await show_serving_configuration(model, number, visit.control, Response())
    except ServegateError as error:
        return None, error
    return served, None


async def _troubled(
    visit: Visit, served: ServingConfigurationView, sheet: Sheet, error: ServegateError
) -> Response:
    """The form as it was typed, and what is wrong with it."""
    if isinstance(error, PreconditionFailed):
        return await _form(
            visit, served, replace(sheet, answer=FormResult(is_stale=True)), http_status(error)
        )
    return await _form(visit, served, replace(sheet, answer=FormResult(error)), http_status(error))


async def _form(
    visit: Visit, served: ServingConfigurationView, sheet: Sheet, status: int = 200
) -> Response:
    """The form alone for htmx, which swaps only what is well; else the page around it."""
    now = Sheet(*(sheet.typed, sheet.shown, served.etag, sheet.reason, sheet.watch, sheet.answer))
    if visit.is_fragment:
        return page(visit, "batching_form.html", served=served, sheet=now)
    view = await show_batching(served.model, served.version, visit.control)
    return await _page(visit, view, served, now, None, status)


async def _page(
    visit: Visit,
    view: BatchingView,
    served: ServingConfigurationView | None,
    sheet: Sheet | None,
    why_not: ServegateError | None,
    status: int = 200,
) -> Response:
    return page(
        visit,
        "batching.html",
        status=status,
        sheet=sheet,
        why_not=why_not,
        progress=batching_rows.progress(served.change if served else None),
        has_ended=False,
        changed="changed" in visit.request.query_params,
        **_seen(view, served),
        is_changed=False,
    )


def _seen(view: BatchingView, served: ServingConfigurationView | None) -> dict[str, Any]:
    """What the measured part of the page is made of, and what the configuration means."""
    return {
        "view": view,
        "served": served,
        "rows": batching_rows.rows(view, served),
        "bars": batching_rows.bars(view.window),
        "pieces": batching_rows.pieces(view.window),
        "said": batching_rows.said(view),
        "steps": batching_rows.steps(view),
    }


async def _former(
    visit: Visit, served: ServingConfigurationView, to: str
) -> tuple[FieldsBody, Revision | None]:
    """What it was run by before the last change, and that change; or what it came with."""
    if to == "own":
        return FieldsBody(fields={}), None
    history = visit.control.history
    found = await history.all(kind=CONFIGURATION, key=served.name, limit=1)
    if not found or f'"{found[0].number}"' != served.etag:
        raise Invalid(
            f"there is no change to undo: '{served.model}' has its original configuration"
        )
    before, after = found[0].before or {}, found[0].after or {}
    if before.get("group", after.get("group")) != after.get("group"):
        raise Invalid(
            "the latest change cannot be undone",
            why="the configuration before it belongs to other versions with the same Triton name",
        )
    body = FieldsBody(fields=before.get("fields") or {}, tuned=before.get("tuned") or {})
    return body, found[0]


def _path(model: str, number: int, query: str = "") -> str:
    return f"/models/{segment(model)}/versions/{number}/batching{query}"
