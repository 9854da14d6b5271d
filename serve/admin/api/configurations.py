"""How a version is configured over the admin API, be it published or of a plain folder."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from serve.admin.api import schemas
from serve.admin.api.context import InControl
from serve.control.configurations import compared, configured
from serve.tensors.signature import ModelTensor

_PATH = "/api/models/{model}/versions/{number}/configuration"

router = APIRouter(tags=["versions"], responses={404: {"model": schemas.ErrorBody}})


class ConfigTensorView(BaseModel):
    """One input or output. In `shape`, -1 is any length; null if the rank is unknown."""

    name: str
    datatype: str
    shape: list[int] | None


class ConfigurationView(BaseModel):
    """The inputs, outputs and configuration of a version. `config` is the text of config.pbtxt,
    empty if Triton completes it. `published` is false for a version in a plain folder.
    """

    model: str
    version: int
    published: bool
    config: str
    inputs: list[ConfigTensorView]
    outputs: list[ConfigTensorView]
    preprocessing: dict[str, Any]
    output_labels: dict[str, list[str]]
    output_kinds: dict[str, Any]
    card: dict[str, Any]


class LineView(BaseModel):
    """One line: `+` exists only in the new text, `-` only in the old one. `old` and `new` are line
    numbers.
    """

    sign: str
    text: str
    old: int | None
    new: int | None


class ConfigurationDiff(BaseModel):
    """The configurations of two versions, line by line. `same` is true if no line differs."""

    model: str
    old: int
    new: int
    same: bool
    lines: list[LineView]


@router.get(_PATH, summary="Show the configuration of a version")
async def show_configuration(model: str, number: int, control: InControl) -> ConfigurationView:
    """Works for every version, including versions that were never pushed."""
    found = configured(control.models, model, number)
    return ConfigurationView(
        model=model,
        version=number,
        published=found.published,
        config=found.config,
        inputs=[_view(spec) for spec in found.inputs],
        outputs=[_view(spec) for spec in found.outputs],
        preprocessing=dict(found.preprocessing),
        output_labels={name: list(texts) for name, texts in found.output_labels.items()},
        output_kinds=dict(found.output_kinds),
        card=dict(found.card),
    )


@router.get(_PATH + "/diff", summary="Compare the configurations of two versions")
async def diff_configurations(
    model: str,
    number: int,
    control: InControl,
    other: Annotated[
        int, Query(alias="with", description="The version to compare with, as the old one.")
    ],
) -> ConfigurationDiff:
    """Returns all lines, including those that are equal."""
    old, new = (configured(control.models, model, one).config for one in (other, number))
    lines = [
        LineView(sign=line.sign, text=line.text, old=line.old, new=line.new)
        for line in compared(old, new)
    ]
    is_same = all(line.sign == " " for line in lines)
    return ConfigurationDiff(model=model, old=other, new=number, same=is_same, lines=lines)


def _view(spec: ModelTensor) -> ConfigTensorView:
    shape = None if spec.shape is None else list(spec.shape)
    return ConfigTensorView(name=spec.name, datatype=spec.datatype, shape=shape)
