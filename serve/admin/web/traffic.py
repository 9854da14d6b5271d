"""Traffic of a model: split and labels, every change of them, and the way back to each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Response

from serve.admin.api import history as history_api
from serve.admin.api import models as models_api
from serve.admin.api import routes as api
from serve.admin.api import schemas
from serve.admin.api.context import AdminContext
from serve.admin.web.form_fields import IfMatch, Reason, Word, as_asked
from serve.admin.web.page_templates import Visiting, go, page, segment
from serve.admin.web.shares import shares
from serve.control.decisions import LABEL, MODEL, ROUTE, SERVING
from serve.control.history import FieldDifference, Revision, differences
from serve.control.live.mirror_counts import MirrorCounts
from serve.core.errors import Invalid, PreconditionFailed, ServegateError, UnknownRevision
from serve.core.routes import sticky_text

router = APIRouter(include_in_schema=False)
_PATH = "/traffic/{model}"
_SECONDS = 5.0  # that a page waits until every worker serves a change
_MOST = 30  # changes on a page
_LABEL_CHANGES = 300  # of all models that are looked through
_WEIGHT = re.compile(r"weight-([1-9][0-9]{0,17})\Z")
_WHOLE = re.compile(r"[0-9]{1,7}\Z")


@dataclass(frozen=True, slots=True)
class SplitRow:
    """One version in the split's form."""

    version: int
    weight: int
    is_ready: bool
    labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class Changed:
    """A change in the list; `is_now`: the thing is still as this change has left it."""

    revision: Revision
    fields: Sequence[FieldDifference]
    is_now: bool


@router.get(_PATH)
async def show(model: str, visit: Visiting, changed: str = "") -> Response:
    """How calls are divided now, and how they were before."""
    answer = Response()
    route = await api.show_route(model, visit.control, answer)
    told = await models_api.show_model(model, visit.control, Response())
    return page(
        visit,
        "traffic.html",
        model=told,
        route=route,
        sticky=sticky_text(route.sticky) if route.sticky else "",
        etag=answer.headers["etag"],
        changed=bool(changed),
        shares=shares(route.split),
        rows=_rows(told, route.split),
        ready=[one.version for one in told.versions if one.state == "ready"],
        history=await _history(visit.control, model),
        mirror=await _mirror(visit.control, model) if route.mirror else None,
    )


async def _mirror(control: AdminContext, model: str) -> MirrorCounts | None:
    """None while the data plane does not respond."""
    try:
        return await api.show_mirror(model, control)
    except (ServegateError, OSError, ValueError):
        return None


@router.post(_PATH + "/split")
async def set_split(
    model: str, visit: Visiting, reason: Reason = "", if_match: IfMatch = ""
) -> Response:
    """The form's weights become the split."""
    form = await visit.request.form()
    body = schemas.RouteBody(split=_weights(dict(form)))
    who = as_asked(visit, reason, if_match)
    try:
        await api.put_route(model, body, visit.control, who, Response(), _SECONDS)
    except PreconditionFailed:
        return go(_path(model, "?changed=1"), visit)
    return go(_path(model), visit)


@router.post(_PATH + "/labels")
async def set_label(
    model: str,
    visit: Visiting,
    version: Annotated[int, Form(gt=0)],
    label: Word = "",
    reason: Reason = "",
) -> Response:
    """A label is made, or moved to another version."""
    body, who = schemas.LabelBody(version=version), as_asked(visit, reason)
    await models_api.put_label(model, label.strip(), body, visit.control, who, Response(), _SECONDS)
    return go(_path(model), visit)


@router.post(_PATH + "/labels/remove")
async def remove_label(
    model: str, visit: Visiting, label: Word = "", reason: Reason = ""
) -> Response:
    """A label is no more."""
    who = as_asked(visit, reason)
    await models_api.delete_label(model, label, visit.control, who, Response(), _SECONDS)
    return go(_path(model), visit)


@router.get(_PATH + "/rollback/{revision}")
async def ask_rollback(model: str, revision: int, visit: Visiting) -> Response:
    """What going back to a revision would change, before anything does."""
    one = await _of_model(visit.control, model, revision)
    present = visit.control.models.decisions.entry(one.kind, one.key)
    return page(
        visit,
        "rollback.html",
        model=model,
        thing=_thing(one),
        revision=one,
        etag=present.etag,
        fields=differences(present.body, one.after),
    )


@router.post(_PATH + "/rollback/{revision}")
async def roll_back(
    model: str, revision: int, visit: Visiting, reason: Reason = "", if_match: IfMatch = ""
) -> Response:
    """Go back, unless it was changed since the question was shown."""
    await _of_model(visit.control, model, revision)
    who = as_asked(visit, reason, if_match)
    try:
        await history_api.restore(
            revision, visit.control, who, Response(), dry_run=False, wait=_SECONDS
        )
    except PreconditionFailed:
        return go(_path(model, "?changed=1"), visit)
    return go(_path(model), visit)


def _rows(model: schemas.ModelDetail, split: Mapping[int, int]) -> list[SplitRow]:
    """Every version that can get calls, or does."""
    return [
        SplitRow(one.version, split.get(one.version, 0), one.state == "ready", one.labels)
        for one in model.versions
        if one.state == "ready" or split.get(one.version, 0)
    ]


def _weights(form: Mapping[str, Any]) -> dict[int, int]:
    found = {}
    for name, text in form.items():
        if match := _WEIGHT.match(name):
            if not _WHOLE.match(str(text)):
                raise Invalid(
                    f"'{str(text)[:50]}' is not a valid weight for version {match[1]}",
                    why="weights are whole numbers, 0 or greater",
                )
            found[int(match[1])] = int(str(text))
    if not any(found.values()):
        raise Invalid(
            "no version would receive traffic",
            why="all weights are 0",
            try_this="a weight above 0 for at least one version",
        )
    return {version: weight for version, weight in found.items() if weight}


def _thing(one: Revision) -> str:
    """What a change has changed, in the words of the page."""
    if one.kind == LABEL:
        return f"the label {one.key.rpartition(':')[2]}"
    things = {ROUTE: "the traffic split", MODEL: "the settings", SERVING: "the serving state"}
    return things.get(one.kind, one.kind)


async def _of_model(control: AdminContext, model: str, number: int) -> Revision:
    """A change of this model; `UnknownRevision` for any other."""
    one = await control.history.get(number)
    if not _is_of(one, model):
        raise UnknownRevision(number)
    return one


async def _history(control: AdminContext, model: str) -> list[Changed]:
    """The newest changes of its split, labels, settings and of whether it is served."""
    found = list(await control.history.all(kind=LABEL, limit=_LABEL_CHANGES))
    for kind in (ROUTE, MODEL, SERVING):
        found += await control.history.all(kind=kind, key=model, limit=_MOST)
    own = sorted((one for one in found if _is_of(one, model)), key=lambda one: -one.number)
    newest: dict[tuple[str, str], int] = {}
    for one in own:
        newest.setdefault((one.kind, one.key), one.number)
    return [
        Changed(one, differences(one.before, one.after), newest[one.kind, one.key] == one.number)
        for one in own[:_MOST]
    ]


def _is_of(one: Revision, model: str) -> bool:
    if one.kind == LABEL:
        return one.key.rpartition(":")[0] == model
    return one.kind in (ROUTE, MODEL, SERVING) and one.key == model


def _path(model: str, query: str = "") -> str:
    return f"/traffic/{segment(model)}{query}"
