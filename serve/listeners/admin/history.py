"""The history over the admin API: what was changed, what differs, and the way back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from serve.control.history import Difference, Revision, differences
from serve.control.versions import VERSION
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, InControl
from serve.listeners.admin.models import Wait, done

router = APIRouter(tags=["history"], responses={404: {"model": schemas.ErrorBody}})
_LONGEST = 200  # characters of a summary


class RevisionLine(BaseModel):
    """One change in a list; `summary` is what it changed, cut off where that is long."""

    revision: int
    at: datetime
    author: str
    reason: str
    kind: str
    key: str
    summary: str


class RevisionView(RevisionLine):
    """One change with the whole body of the thing before and after it; null for none."""

    before: Any
    after: Any


class DifferenceView(BaseModel):
    """One field that differs; null where there is no such field."""

    field: str
    old: Any
    new: Any


class DiffView(BaseModel):
    """What differs between two states of one thing; `lines` say the same to people."""

    kind: str
    key: str
    changes: list[DifferenceView]
    lines: list[str]


@router.get("/api/history", summary="List changes")
async def list_history(
    control: InControl,
    kind: Annotated[str, Query(max_length=40, description="route, label, model …")] = "",
    key: Annotated[str, Query(description="the model; for labels model:label")] = "",
    before: Annotated[int, Query(ge=0, description="only revisions below this one")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[RevisionLine]:
    """The newest first, of everything or of one kind or thing."""
    found = await control.history.all(kind=kind, key=key, before=before, limit=limit)
    return [RevisionLine(**_line(one)) for one in found]


@router.get("/api/history/{revision}", summary="Show one change")
async def show_revision(revision: int, control: InControl) -> RevisionView:
    """The bodies before and after; digests of keys are left out."""
    one = await control.history.get(revision)
    return RevisionView(**_line(one), before=one.before, after=one.after)


@router.get("/api/history/{revision}/diff", summary="Compare two states of a thing")
async def show_diff(
    revision: int,
    control: InControl,
    other: Annotated[
        int | None, Query(alias="with", description="another revision of the same thing")
    ] = None,
) -> DiffView:
    """What the revision changed; or, `with` another one, what is new in that one."""
    one = await control.history.get(revision)
    found = await control.history.diff(revision, other)
    return DiffView(
        kind=one.kind,
        key=one.key,
        changes=[DifferenceView(field=each.field, old=each.old, new=each.new) for each in found],
        lines=[str(each) for each in found],
    )


@router.post("/api/history/{revision}/rollback", summary="Go back to an earlier state")
async def roll_back(
    revision: int, control: InControl, who: ByWhom, response: Response, wait: Wait = 5.0
) -> schemas.Done:
    """The thing gets the body that it had right after the revision, if that is allowed today."""
    return await done(control, await control.history.rollback(revision, who), wait, response)


def _line(one: Revision) -> dict[str, Any]:
    return {
        "revision": one.number,
        "at": datetime.fromtimestamp(one.at, UTC),
        "author": one.author,
        "reason": one.reason,
        "kind": one.kind,
        "key": one.key,
        "summary": _summary(one),
    }


def _summary(one: Revision) -> str:
    """What changed, on one line; of a version that has come a step further, only the step."""
    found: Sequence[Difference] = differences(one.before, one.after)
    if one.kind == VERSION:
        found = [each for each in found if each.field == "state"] or found
    text = "; ".join(str(each) for each in found)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
