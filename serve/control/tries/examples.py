"""Example inputs: those of the golden cases of a version, for people who have none at hand."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from serve.control.tries.picture import is_picture, png
from serve.control.tries.records import InputLine
from serve.control.tries.versions import TriedVersions
from serve.core.errors import NotFound
from serve.tensors.contracts import Case
from serve.tensors.datatypes import datatype_of
from serve.tensors.preprocessing import ImageSteps, parse

_FORM = "example"


@dataclass(frozen=True, slots=True)
class Example:
    """One example input, from a golden case. `id` is VERSION-CASE; `name` can be empty."""

    id: str
    version: int
    name: str
    source: str
    inputs: list[InputLine]


class Examples:
    """The examples of models."""

    def __init__(self, versions: TriedVersions) -> None:
        self._versions = versions

    def __repr__(self) -> str:
        return f"<Examples of {self._versions!r}>"

    def require(self, model: str) -> None:
        """`UnknownModel` when there is none."""
        self._versions.require(model)

    async def all(self, model: str, version: int | None = None) -> list[Example]:
        """Those of one version; without a number, of the one that gets most calls."""
        self._versions.require(model)
        number = self._versions.newest(model) if version is None else version
        if number is None:
            return []
        steps = self._steps(model, number)
        return [
            Example(
                f"{number}-{one.id}", number, one.case.name, "contract", _lines(one.case, steps)
            )
            for one in await self._versions.cases(model, number)
        ]

    async def case(self, model: str, identity: str) -> Case:
        """The inputs of an example, and what they gave; `NotFound`."""
        self._versions.require(model)
        number, _, case = identity.partition("-")
        if number.isascii() and number.isdigit() and len(number) < 18:
            for one in await self._versions.cases(model, int(number)):
                if one.id == case:
                    return one.case
        raise NotFound(
            f"model '{model}' has no example '{identity[:40]}'",
            try_this=f"GET /api/models/{model}/examples",
        )

    async def picture(self, model: str, identity: str, name: str = "") -> bytes:
        """The first input of an example that is a picture, or the one of this name, as PNG."""
        case = await self.case(model, identity)
        steps = self._steps(model, int(identity.partition("-")[0]))
        for one in (name,) if name else case.inputs:
            array = case.inputs.get(one)
            drawn = None
            if array is not None:
                drawn = await asyncio.to_thread(png, array, steps.get(one))
            if drawn is not None:
                return drawn
        raise NotFound(f"example '{identity}' has no picture")

    def _steps(self, model: str, number: int) -> Mapping[str, ImageSteps]:
        document = self._versions.of(model, number).preprocessing
        found = parse(document).inputs if document else {}
        return {name: one for name, one in found.items() if isinstance(one, ImageSteps)}


def _lines(case: Case, steps: Mapping[str, ImageSteps]) -> list[InputLine]:
    return [
        InputLine(
            name=name,
            datatype=case.datatypes.get(name) or datatype_of(array, name),
            shape=list(array.shape),
            form=_FORM,
            preview=is_picture(array, steps.get(name)),
        )
        for name, array in case.inputs.items()
    ]
