"""What a model takes and gives at this moment, over the admin API: for who makes input for it."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from serve.admin.api import schemas
from serve.admin.api.context import InControl
from serve.core.errors import NotServed
from serve.tensors.metadata import TensorSpec

router = APIRouter(
    tags=["models"],
    responses={404: {"model": schemas.ErrorBody}, 503: {"model": schemas.ErrorBody}},
)


class TensorView(BaseModel):
    """One input or output. In `shape`, -1 is any length. The first dimension is the number of
    rows.
    """

    name: str
    datatype: str
    shape: list[int]


class MetadataView(BaseModel):
    """Inputs and outputs as Triton reports them, and the recorded preprocessing, or empty."""

    model: str
    selector: str
    inputs: list[TensorView]
    outputs: list[TensorView]
    preprocessing: dict[str, Any]


@router.get("/api/models/{model}/metadata", summary="Show the inputs and outputs of a model")
async def show_metadata(
    model: str,
    control: InControl,
    selector: Annotated[
        str,
        Query(
            max_length=63,
            description="Version number, label, or empty for the version that the route chooses.",
        ),
    ] = "",
) -> MetadataView:
    """Asks the gateway, like any client."""
    if control.tries is None:
        raise NotServed("this control plane cannot send calls")
    takes = await control.tries.takes(model, selector)
    return MetadataView(
        model=model,
        selector=selector,
        inputs=[_view(one) for one in takes.metadata.inputs.values()],
        outputs=[_view(one) for one in takes.metadata.outputs.values()],
        preprocessing=dict(takes.preprocessing),
    )


def _view(one: TensorSpec) -> TensorView:
    return TensorView(name=one.name, datatype=one.datatype, shape=list(one.shape))
