"""Contracts over the admin API: the golden cases of a version, and those that people add."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import ByWhom, InControl
from serve.control.tries.desk import TryDesk
from serve.control.tries.golden_cases import Listed
from serve.tensors.datatypes import datatype_of
from serve.tensors.expected_outputs import Tolerance

router = APIRouter(tags=["contracts"], responses={404: {"model": schemas.ErrorBody}})
_PATH = "/api/models/{model}/versions/{number}/contract"
_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {
        "model": schemas.ErrorBody,
        "description": "The version has no contract, or the case is not allowed.",
    }
}
Least = Annotated[float | None, Field(ge=0, lt=1e300, allow_inf_nan=False)]


class CaseBody(BaseModel):
    """Which side of the run is correct, the name of the case, and the tolerances.

    `atol` and `rtol` apply to floats (default: 1e-4 and 1e-3). `top1` is the share of rows whose
    highest score must be at the same position.
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
    """One golden case. `author` added it, or pushed the version, at `at` (seconds since the
    epoch).
    """

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
    """The cases of a version. `replicas` is empty if all of them pass, and otherwise lists the
    failures.
    """

    model: str
    version: int
    replicas: dict[str, str]
    cases: list[CaseView]


@router.get(_PATH, summary="List a version's golden cases", responses=_CONFLICT)
async def show_contract(model: str, number: int, control: InControl) -> ContractView:
    """Returns the cases that were pushed with the version, then those that were added."""
    desk: TryDesk = control.tries
    told = await desk.contract(model, number)
    cases = [_view(one) for one in told.cases]
    return ContractView(model=model, version=number, replicas=dict(told.replicas), cases=cases)


@router.delete(
    _PATH + "/{case}", status_code=204, summary="Remove an added golden case", responses=_CONFLICT
)
async def remove_case(
    model: str,
    number: int,
    case: Annotated[str, Path(max_length=60)],
    control: InControl,
    who: ByWhom,
) -> Response:
    """Cases that were pushed with the version cannot be removed."""
    desk: TryDesk = control.tries
    await desk.forget_case(model, number, case, who)
    return Response(status_code=204)


@router.post(
    "/api/tries/{identity}/contract",
    status_code=201,
    summary="Save a response as a golden case",
    responses=_CONFLICT,
)
async def save_case(identity: str, body: CaseBody, control: InControl, who: ByWhom) -> CaseView:
    """From now on, the version has to reproduce this response on every replica.

    The case is refused if the replicas do not reproduce it now.
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
