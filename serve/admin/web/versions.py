"""One version: its record, files, configuration and what differs in it, contract, and its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Response

from serve.admin.api import models as models_api
from serve.admin.api import schemas
from serve.admin.api import versions as api
from serve.admin.api.configurations import (
    ConfigurationDiff,
    diff_configurations,
    show_configuration,
)
from serve.admin.api.context import AdminContext
from serve.admin.api.contracts import ContractView, remove_case, show_contract
from serve.admin.web.form_fields import IfMatch, Reason, Word, as_asked
from serve.admin.web.page_templates import Visit, Visiting, go, page, segment
from serve.admin.web.preprocessing_text import in_words
from serve.core.errors import NotFound, PreconditionFailed
from serve.core.versions import CONVERSION, VersionState

router = APIRouter(include_in_schema=False)
_PATH = "/models/{model}/versions/{number}"
_SECONDS = 5.0  # that a page waits until every worker serves a change
_AROUND = 3  # lines that are shown before and after one that differs


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines that are left out because both have them."""

    count: int


@router.get(_PATH)
async def show(
    model: str,
    number: int,
    visit: Visiting,
    against: Annotated[int | None, Query(gt=0)] = None,
    changed: str = "",
) -> Response:
    """The version; `against` is another one whose configuration it is held against."""
    control = visit.control
    told = await models_api.show_model(model, control, Response())
    record, etag = await _record(control, model, number)
    configuration = (
        await show_configuration(model, number, control) if _is_in(told, number) else None
    )
    others = [one.version for one in told.versions if one.version != number]
    if against is None and others:
        against = max((one for one in others if one < number), default=others[0])
    diff = None
    if against in others and configuration is not None:
        diff = await diff_configurations(model, number, control, against)
    return page(
        visit,
        "version.html",
        model=told,
        number=number,
        seen=next((one for one in told.versions if one.version == number), None),
        record=record,
        etag=etag,
        changed=bool(changed),
        configuration=configuration,
        others=others,
        against=against,
        diff=diff,
        lines=folded(diff) if diff else [],
        steps=in_words(configuration.preprocessing if configuration else {}),
        contract=await _contract(control, record),
        has_report=any(file.path == CONVERSION for file in record.files) if record else False,
    )


@router.post(_PATH + "/tags")
async def set_tag(
    model: str,
    number: int,
    visit: Visiting,
    name: Word = "",
    text: Annotated[str, Form(max_length=1000)] = "",
    if_match: IfMatch = "",
) -> Response:
    """A tag gets a text; an empty one takes it away."""
    return await _patch(visit, model, number, {"tags": {name.strip(): text.strip()}}, if_match)


@router.post(_PATH + "/keep")
async def set_keep(
    model: str, number: int, visit: Visiting, keep: Word = "", if_match: IfMatch = ""
) -> Response:
    """Whether it stays loaded although nothing refers to it."""
    return await _patch(visit, model, number, {"keep": keep == "yes"}, if_match)


@router.post(_PATH + "/retire")
async def retire(
    model: str, number: int, visit: Visiting, reason: Reason = "", if_match: IfMatch = ""
) -> Response:
    """No replica holds it any more; its files stay until garbage is collected.

    One that has failed goes for good, and has no page then.
    """
    who = as_asked(visit, reason, if_match)
    try:
        left = await api.retire_version(model, number, visit.control, who, Response(), purge=False)
    except PreconditionFailed:
        return go(_path(model, number, "?changed=1"), visit)
    return go("/" if left.recorded is VersionState.REMOVED else _path(model, number), visit)


@router.post(_PATH + "/restore")
async def restore(
    model: str, number: int, visit: Visiting, reason: Reason = "", if_match: IfMatch = ""
) -> Response:
    """It is published again; calls stay where they are."""
    who = as_asked(visit, reason, if_match)
    try:
        await api.restore_version(model, number, visit.control, who, Response())
    except PreconditionFailed:
        return go(_path(model, number, "?changed=1"), visit)
    return go(_path(model, number), visit)


@router.post(_PATH + "/label")
async def set_label(
    model: str, number: int, visit: Visiting, label: Word = "", reason: Reason = ""
) -> Response:
    """A label names this version from now on."""
    body = schemas.LabelBody(version=number)
    who = as_asked(visit, reason)
    await models_api.put_label(model, label.strip(), body, visit.control, who, Response(), _SECONDS)
    return go(_path(model, number), visit)


@router.post(_PATH + "/contract/remove")
async def remove_golden_case(
    model: str, number: int, visit: Visiting, case: Word = "", reason: Reason = ""
) -> Response:
    """A golden case that was added is taken away; what was pushed stays."""
    await remove_case(model, number, case, visit.control, as_asked(visit, reason))
    return go(_path(model, number, "#contract"), visit)


def folded(diff: ConfigurationDiff) -> Sequence[Any]:
    """The lines that differ with some around them, and gaps in between; all of it when short."""
    near = {
        place
        for at, line in enumerate(diff.lines)
        if line.sign != " "
        for place in range(at - _AROUND, at + _AROUND + 1)
    }
    made: list[Any] = []
    for at, line in enumerate(diff.lines):
        if at in near:
            made.append(line)
        elif made and isinstance(made[-1], Gap):
            made[-1] = Gap(made[-1].count + 1)
        else:
            made.append(Gap(1))
    return made


async def _patch(
    visit: Visit, model: str, number: int, body: dict[str, Any], if_match: str
) -> Response:
    patch, who = api.VersionPatch(**body), as_asked(visit, if_match=if_match)
    try:
        await api.patch_version(model, number, patch, visit.control, who, Response())
    except PreconditionFailed:
        return go(_path(model, number, "?changed=1"), visit)
    return go(_path(model, number), visit)


async def _record(
    control: AdminContext, model: str, number: int
) -> tuple[api.VersionView | None, str]:
    """The record of a version that was pushed, and its ETag; none of one of a plain folder."""
    answer = Response()
    try:
        return await api.show_version(model, number, control, answer), answer.headers["etag"]
    except NotFound:
        control.models.version(model, number)
        return None, ""


async def _contract(control: AdminContext, record: api.VersionView | None) -> ContractView | None:
    """The golden cases; none of what is not published."""
    if record is None or record.recorded is not VersionState.PUBLISHED:
        return None
    return await show_contract(record.model, record.version, control)


def _is_in(model: schemas.ModelDetail, number: int) -> bool:
    return any(one.version == number for one in model.versions)


def _path(model: str, number: int, query: str = "") -> str:
    return f"/models/{segment(model)}/versions/{number}{query}"
