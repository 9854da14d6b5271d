"""Contracts over the admin API: the golden cases of a version, and those that people add."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from serve.control.trying.adding import Listed
from serve.control.trying.desk import TryDesk
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, InControl
from serve.tensors.datatypes import datatype_of
from serve.tensors.judging import Tolerance

router = APIRouter(tags=["contracts"], responses={404: {"model": schemas.ErrorBody}})
_PATH = "/api/models/{model}/versions/{number}/contract"
_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": schemas.ErrorBody, "description": "the version can have no such case"}
}
Least = Annotated[float | None, Field(ge=0, lt=1e300, allow_inf_nan=False)]


class CaseBody(BaseModel):
    """Which side of the try is right, how the case is called, and what may differ.

    `atol` and `rtol` are of floats (1e-4 and 1e-3 unless said); `top1` is the share of rows whose
    highest score has to be at the same place.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"side": "a", "name": "a crossed seven"}]}
    )
    side: Literal["a", "b"] = "a"
    name: str = Field(default="", max_length=200)
    atol: Least = None
    rtol: Least = None
    top1: float | None = Field(default=None, gt=0, le=1)


class CaseTensor(BaseModel):
    """One tensor of a case."""

    name: str
    datatype: str
    shape: list[int]


class CaseView(BaseModel):
    """One golden case. `author` has added it, or pushed the version, at `at` (seconds, epoch)."""

    id: str
    name: str
    added: bool
    author: str
    at: float
    inputs: list[CaseTensor]
    outputs: list[CaseTensor]
    atol: float | None
    rtol: float | None
    top1: float | None


class ContractView(BaseModel):
    """The cases of a version. `replicas`: empty where all hold as far as is known, else why not."""

    model: str
    version: int
    replicas: dict[str, str]
    cases: list[CaseView]


@router.get(_PATH, summary="List a version's golden cases", responses=_CONFLICT)
async def show_contract(model: str, number: int, control: InControl) -> ContractView:
    """Those that came with it, then those that were added."""
    desk: TryDesk = control.tries
    told = await desk.contract(model, number)
    cases = [_view(one) for one in told.cases]
    return ContractView(model=model, version=number, replicas=dict(told.replicas), cases=cases)


@router.delete(
    _PATH + "/{case}", status_code=204, summary="Take an added case away", responses=_CONFLICT
)
async def remove_case(
    model: str,
    number: int,
    case: Annotated[str, Path(max_length=60)],
    control: InControl,
    who: ByWhom,
) -> Response:
    """A case that came with the version stays: what is published is never changed."""
    desk: TryDesk = control.tries
    await desk.forget_case(model, number, case, who)
    return Response(status_code=204)


@router.post(
    "/api/tries/{identity}/contract",
    status_code=201,
    summary="Keep an answer as a golden case",
    responses=_CONFLICT,
)
async def save_case(identity: str, body: CaseBody, control: InControl, who: ByWhom) -> CaseView:
    """What that side answered is right: its version must go on answering so, wherever it is called.

    Refused when its replicas do not answer so right now.
    """
    desk: TryDesk = control.tries
    tolerance = Tolerance(body.atol, body.rtol, body.top1)
    _, case = await desk.save(identity, body.side, body.name, tolerance, who)
    return _view(case)


def _view(one: Listed) -> CaseView:
    case = one.case
    inputs = [
        CaseTensor(
            name=name,
            datatype=case.datatypes.get(name) or datatype_of(array, name),
            shape=list(array.shape),
        )
        for name, array in case.inputs.items()
    ]
    outputs = [
        CaseTensor(name=name, datatype=datatype_of(array, name), shape=list(array.shape))
        for name, array in case.outputs.items()
    ]
    return CaseView(
        id=one.id,
        name=case.name,
        added=one.added,
        author=one.author,
        at=one.at,
        inputs=inputs,
        outputs=outputs,
        atol=case.tolerance.atol,
        rtol=case.tolerance.rtol,
        top1=case.tolerance.top1,
    )
