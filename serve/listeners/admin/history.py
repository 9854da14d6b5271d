"""The history over the admin API: what was changed, what differs, and the way back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from serve.control.history import Difference, Revision, Way, differences
from serve.control.models import By, Written
from serve.control.versions import VERSION
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, Control, InControl
from serve.listeners.admin.models import Wait, done

router = APIRouter(tags=["history"], responses={404: {"model": schemas.ErrorBody}})
DryRun = Annotated[bool, Query(description="only say what would change")]
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


class WayBackView(schemas.Done):
    """A way back that was taken, or would be: `changed` says whether anything was changed.

    `lines` say what differs, field by field; none where nothing does.
    """

    changed: bool
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


@router.post("/api/history/{revision}/undo", summary="Take one change back")
async def undo(
    revision: int,
    control: InControl,
    who: ByWhom,
    response: Response,
    dry_run: DryRun = False,
    wait: Wait = 5.0,
) -> WayBackView:
    """The fields that the revision changed are as before it, unless later ones changed them again.

    Nothing is changed by a revision that changed nothing, and by a dry run.
    """
    way = await control.history.undoing(revision)
    return await _take(way, control, who, response, dry_run=dry_run, wait=wait)


@router.post("/api/history/{revision}/restore", summary="Go back to an earlier state")
@router.post("/api/history/{revision}/rollback", include_in_schema=False)  # its former name
async def restore(
    revision: int,
    control: InControl,
    who: ByWhom,
    response: Response,
    dry_run: DryRun = False,
    wait: Wait = 5.0,
) -> WayBackView:
    """The thing gets the body that it had right after the revision, if that is allowed today.

    Nothing is changed where it has that body now, and by a dry run.
    """
    way = await control.history.restoring(revision)
    return await _take(way, control, who, response, dry_run=dry_run, wait=wait)


async def _take(
    way: Way, control: Control, who: By, response: Response, *, dry_run: bool, wait: float
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
    found: Sequence[Difference] = differences(one.before, one.after)
    if one.kind == VERSION:
        found = [each for each in found if each.field == "state"] or found
    text = "; ".join(str(each) for each in found)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
