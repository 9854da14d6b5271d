"""The history over the admin API: what was changed, what differs, and the way back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.admin.api.models import Wait, done
from serve.control.history import FieldDifference, Revision, WayBack, differences
from serve.control.models import By, Written
from serve.control.versions import VERSION

router = APIRouter(tags=["history"], responses={404: {"model": schemas.ErrorBody}})
DryRun = Annotated[bool, Query(description="Only report the changes, without making them.")]
_LONGEST = 200  # characters of a summary


class RevisionLine(BaseModel):
    """One change in a list. `summary` describes it, and is cut off if it is long."""

    revision: int
    at: datetime
    author: str
    reason: str
    kind: str
    key: str
    summary: str


class RevisionView(RevisionLine):
    """One change with the whole object before and after it; null if it did not exist."""

    before: Any
    after: Any


class DifferenceView(BaseModel):
    """One field that differs; null if the field does not exist."""

    field: str
    old: Any
    new: Any


class DiffView(BaseModel):
    """The differences between two states of an object. `lines` are the same as text."""

    kind: str
    key: str
    changes: list[DifferenceView]
    lines: list[str]


class WayBackView(schemas.Done):
    """An undone or restored change, or its dry run. `changed` is false if nothing was changed.

    `lines` are the differences, field by field.
    """

    changed: bool
    lines: list[str]


@router.get("/api/history", summary="List changes")
async def list_history(
    control: InControl,
    kind: Annotated[
        str, Query(max_length=40, description="Kind of the object: route, label, model, ...")
    ] = "",
    key: Annotated[
        str, Query(description="Key of the object: the model, or model:label for a label.")
    ] = "",
    before: Annotated[int, Query(ge=0, description="Return only revisions below this number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[RevisionLine]:
    """Returns the newest first, for everything, one kind or one object."""
    found = await control.history.all(kind=kind, key=key, before=before, limit=limit)
    return [RevisionLine(**_line(one)) for one in found]


@router.get("/api/history/{revision}", summary="Show one change")
async def show_revision(revision: int, control: InControl) -> RevisionView:
    """Returns the object before and after the change, without digests of keys."""
    one = await control.history.get(revision)
    return RevisionView(**_line(one), before=one.before, after=one.after)


@router.get("/api/history/{revision}/diff", summary="Compare two revisions")
async def show_diff(
    revision: int,
    control: InControl,
    other: Annotated[
        int | None, Query(alias="with", description="Another revision of the same object.")
    ] = None,
) -> DiffView:
    """Returns what the revision changed, or, `with` another revision, what differs in that one."""
    one = await control.history.get(revision)
    found = await control.history.diff(revision, other)
    return DiffView(
        kind=one.kind,
        key=one.key,
        changes=[DifferenceView(field=each.field, old=each.old, new=each.new) for each in found],
        lines=[str(each) for each in found],
    )


@router.post("/api/history/{revision}/undo", summary="Undo a change")
async def undo(
    revision: int,
    control: InControl,
    who: ByWhom,
    response: Response,
    dry_run: DryRun = False,
    wait: Wait = 5.0,
) -> WayBackView:
    """Resets the fields that the revision changed, unless a later revision changed them again.

    A revision without changes and a dry run change nothing.
    """
    way = await control.history.undoing(revision)
    return await _take(way, control, who, response, dry_run=dry_run, wait=wait)


@router.post("/api/history/{revision}/restore", summary="Restore an earlier state")
@router.post("/api/history/{revision}/rollback", include_in_schema=False)  # its former name
async def restore(
    revision: int,
    control: InControl,
    who: ByWhom,
    response: Response,
    dry_run: DryRun = False,
    wait: Wait = 5.0,
) -> WayBackView:
    """Restores the object as it was after the revision, if that is still allowed.

    A dry run changes nothing. Neither does a restore of the current state.
    """
    way = await control.history.restoring(revision)
    return await _take(way, control, who, response, dry_run=dry_run, wait=wait)


async def _take(
    way: WayBack, control: AdminContext, who: By, response: Response, *, dry_run: bool, wait: float
) -> WayBackView:
    lines = [str(each) for each in way.changes]
    written = None if dry_run else await control.history.take(way, who)
    is_changed = written is not None
    written = written or Written(control.publisher.snapshot.generation, way.etag)
    told = await done(control, written, wait if is_changed else 0.0, response)
    return WayBackView(**told.model_dump(), changed=is_changed, lines=lines)


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
    found: Sequence[FieldDifference] = differences(one.before, one.after)
    if one.kind == VERSION:
        found = [each for each in found if each.field == "state"] or found
    text = "; ".join(str(each) for each in found)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
