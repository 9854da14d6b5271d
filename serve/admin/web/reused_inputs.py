"""Input that is there already: of an earlier try, or of a row of a dataset."""

import asyncio
from urllib.parse import quote

from starlette.datastructures import FormData

from serve.admin.api.context import AdminContext
from serve.admin.api.features import ReusedInput
from serve.admin.web.page_templates import segment
from serve.control.tries.desk import Takes
from serve.control.tries.messages import archive, unpack
from serve.control.tries.requests import Offered
from serve.core.errors import Invalid, NotFound
from serve.tensors.input_forms import RAW

_RAW = frozenset(form.value for form in RAW)


async def again_of(
    control: AdminContext, run: str, dataset: str, row: str, revision: str
) -> ReusedInput | None:
    """What a link to the page names; None where it names nothing. `NotFound`."""
    if run:
        one = await control.tries.shelf.get(run)
        named = next((line.name for line in one.inputs if line.preview), None)
        path = f"/api/tries/{segment(run)}/inputs/{segment(named)}.png" if named else ""
        return ReusedInput(
            "Input of an earlier run.", f"/runs/{run}", "View the run", path, {"run": run}
        )
    if not dataset:
        return None
    return await control.rows.row(dataset, _number(row), _number(revision) or None)


async def offered_again(
    control: AdminContext, form: FormData, takes: Takes, model: str
) -> dict[str, Offered]:
    """The input that a form names by the fields of `ReusedInput`."""
    if run := str(form.get("run", "")):
        return await _of_run(control, run)
    dataset, number = str(form.get("dataset", "")), _number(str(form.get("row", "")))
    revision = _number(str(form.get("revision", ""))) or None
    return await control.rows.offered(dataset, number, revision, takes, model)


def link_to_row(model: str, a: str, b: str, dataset: str, row: int, revision: int) -> str:
    """The page on which a row can be tried."""
    sides = f"a={quote(a, safe='')}" + (f"&b={quote(b, safe='')}" if b else "")
    return f"/try/{segment(model)}?{sides}&dataset={segment(dataset)}&row={row}&revision={revision}"


async def _of_run(control: AdminContext, run: str) -> dict[str, Offered]:
    shelf = control.tries.shelf
    one = await shelf.get(run)
    given = await shelf.given(run)
    if given is not None and len(one.inputs) == 1 and one.inputs[0].form in _RAW:
        data, called = given
        return {one.inputs[0].name: Offered(one.inputs[0].form, data, called)}
    for side in ("a", "b"):
        try:
            tensors, _ = await asyncio.to_thread(unpack, await shelf.inputs(run, side))
        except NotFound:
            continue
        data = await asyncio.to_thread(archive, tensors)
        return {"": Offered("npz", data, "the input of an earlier run")}
    raise NotFound(f"the input of run '{run}' was not stored", try_this="enter it again")


def _number(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(f"'{text[:40]}' is not a row or revision number")
    return int(text)
