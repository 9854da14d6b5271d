"""Tries: one or two versions called with one input through the gateway itself, and kept.

The sides are called one after the other, so that neither takes time from the other. Input is made
ready for each side by what is recorded with its version: with other preprocessing, one picture is
another tensor.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from serve.control.artifacts.objects import Objects
from serve.control.gateway import STREAM, Answered
from serve.control.tries.examples import Examples
from serve.control.tries.messages import Datatypes, Tensors, pack
from serve.control.tries.outputs import differences
from serve.control.tries.picture import drawing, picture, png
from serve.control.tries.records import InputLine, OutputDifference, Try, TrySide
from serve.control.tries.requests import EXAMPLE, Offered, TryRequest
from serve.control.tries.sides import PreparedSide, Sides, failed
from serve.control.tries.storage import TryFiles, TryShelf
from serve.core.errors import Invalid, ServegateError
from serve.tensors.archive import write_archive
from serve.tensors.contracts import MOST_BYTES
from serve.tensors.input_forms import GivenInput, InputForm
from serve.tensors.output_kinds import fitting, has_stream

SIDES = ("a", "b")
_AT_ONCE = 4  # tries that are under way at one moment
_SUFFIXES = {InputForm.TEXT: "txt", InputForm.IMAGE: "png"}  # the others are called like their form
Ready = PreparedSide | ServegateError


class Tries:
    """The commands and questions about tries. `draw` gives eight random hexadecimal digits."""

    def __init__(
        self,
        objects: Objects,
        sides: Sides,
        examples: Examples,
        *,
        wall: Callable[[], float],
        draw: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self.shelf = TryShelf(objects)
        self.examples = examples
        self._sides = sides
        self._wall = wall
        self._draw = draw
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def __repr__(self) -> str:
        return f"<Tries {self.shelf!r}>"

    async def make(self, ask: TryRequest, author: str) -> Try:
        """Call every side once, and keep what comes.

        `Invalid` when the input does not fit side A; whatever else fails is a side's own error.
        """
        self.examples.require(ask.model)
        given = {name: await self._given(ask.model, one) for name, one in ask.inputs.items()}
        seed = int(self._draw(), 16) if ask.seed is None else ask.seed
        async with self._turns:
            ready = [
                await self._prepared(ask, side, given, seed) for side in SIDES[: len(ask.selectors)]
            ]
            if any(isinstance(one, PreparedSide) and has_stream(one.declared) for one in ready):
                ask = replace(ask, via=STREAM)
            called = [
                await self._called(ask, side, one) for side, one in zip(SIDES, ready, strict=False)
            ]
            one, parts = await asyncio.to_thread(
                self._record, ask, author, seed, ready, called, _only(given)
            )
        await self.shelf.keep(one, parts)
        return one

    async def _prepared(
        self, ask: TryRequest, side: str, given: Mapping[str, GivenInput], seed: int
    ) -> Ready:
        try:
            return await self._sides.prepare(ask, _selector(ask, side), given, seed)
        except ServegateError as error:
            if isinstance(error, Invalid) and side == SIDES[0]:
                raise
            return error

    async def _called(
        self, ask: TryRequest, side: str, ready: Ready
    ) -> tuple[TrySide, Answered | None]:
        if isinstance(ready, ServegateError):
            return failed(side, _selector(ask, side), ready), None
        return await self._sides.call(ask, side, ready)

    async def _given(self, model: str, offered: Offered) -> GivenInput:
        """What was offered, in a form that is read; an example is an archive of its inputs."""
        if offered.form != EXAMPLE:
            return GivenInput(InputForm(offered.form), offered.data, offered.name)
        case = await self.examples.case(model, offered.name)
        data = await asyncio.to_thread(write_archive, case.inputs, most=MOST_BYTES)
        return GivenInput(InputForm.NPZ, data, f"example {offered.name}")

    def _record(
        self,
        ask: TryRequest,
        author: str,
        seed: int,
        ready: Sequence[Ready],
        called: Sequence[tuple[TrySide, Answered | None]],
        given: GivenInput | None,
    ) -> tuple[Try, TryFiles]:
        """What is told, and what is kept beside it."""
        at = self._wall()
        identity = f"{int(at * 1000):012x}{self._draw()}"
        prepared = {
            side: one
            for side, one in zip(SIDES, ready, strict=False)
            if isinstance(one, PreparedSide)
        }
        answers = {side.side: answered for side, answered in called if answered is not None}
        distinct = _distinct(prepared)
        pictures = _pictures(distinct)
        drawings = _drawings(prepared, answers)
        told = Try(
            id=identity,
            model=ask.model,
            at=at,
            author=author,
            via=ask.via,
            seed=seed,
            inputs=_input_lines(ask, distinct, pictures),
            notes=_notes(prepared, distinct),
            sides=[_with_previews(side, drawings) for side, _ in called],
            difference=_difference(prepared, answers),
        )
        sent = {side: (o.inputs.tensors, o.inputs.datatypes) for side, o in distinct.items()}
        got = {side: (one.outputs, one.datatypes) for side, one in answers.items()}
        kept = None if given is None else (given.data, _file_name(given, identity))
        return told, TryFiles(_packed(sent), _packed(got), pictures, drawings, kept)


def _packed(by_side: Mapping[str, tuple[Tensors, Datatypes]]) -> Mapping[str, bytes]:
    """What can be kept, without what is too large."""
    packed = {side: pack(*tensors) for side, tensors in by_side.items()}
    return {side: data for side, data in packed.items() if data is not None}


def _pictures(distinct: Mapping[str, PreparedSide]) -> Mapping[tuple[str, str], bytes]:
    """The inputs that are pictures, as files, by side and name."""
    return {
        (side, name): drawn
        for side, one in distinct.items()
        for name, array in one.inputs.tensors.items()
        if (drawn := png(array, one.steps.get(name))) is not None
    }


def _drawings(
    prepared: Mapping[str, PreparedSide], answers: Mapping[str, Answered]
) -> Mapping[tuple[str, str], bytes]:
    """The outputs that are pictures, as files, by side and name."""
    found = {}
    for side, answer in answers.items():
        one = prepared[side]
        seen = (picture(array, one.steps.get(name)) for name, array in one.inputs.tensors.items())
        background = next((image for image in seen if image is not None), None)
        specs = one.metadata.outputs
        for name, declared in fitting(one.declared, answer.outputs, specs).items():
            made = drawing(name, answer.outputs, declared, specs.get(name), background)
            if made is not None:
                found[side, name] = made
    return found


def _with_previews(side: TrySide, drawings: Mapping[tuple[str, str], bytes]) -> TrySide:
    lines = [
        replace(line, preview=True) if (side.side, line.name) in drawings else line
        for line in side.outputs
    ]
    return replace(side, outputs=lines)


def _selector(ask: TryRequest, side: str) -> str:
    return ask.selectors[SIDES.index(side)]


def _only(given: Mapping[str, GivenInput]) -> GivenInput | None:
    """What people gave, if that was one thing with bytes of its own."""
    found = [one for one in given.values() if one.data]
    return found[0] if len(found) == len(given) == 1 else None


def _file_name(given: GivenInput, identity: str) -> str:
    suffix = _SUFFIXES.get(given.form, given.form.value)
    return given.name if "." in given.name else f"{identity}.{suffix}"


def _distinct(prepared: Mapping[str, PreparedSide]) -> Mapping[str, PreparedSide]:
    """Without the side that is sent the very same tensors as the other."""
    if len(prepared) < 2:
        return prepared
    a, b = (prepared[side].inputs for side in SIDES)
    is_same = a.datatypes == b.datatypes and all(
        array.shape == b.tensors[name].shape and bool(np.all(array == b.tensors[name]))
        for name, array in a.tensors.items()
    )
    return {SIDES[0]: prepared[SIDES[0]]} if is_same else prepared


def _input_lines(
    ask: TryRequest, distinct: Mapping[str, PreparedSide], pictures: Mapping[tuple[str, str], bytes]
) -> list[InputLine]:
    """The inputs of the first side that has some."""
    for side, one in distinct.items():
        whole = ask.inputs.get("")
        return [
            InputLine(
                name=name,
                datatype=one.inputs.datatypes[name],
                shape=list(array.shape),
                form=(ask.inputs.get(name) or whole or Offered("")).form,
                preview=(side, name) in pictures,
            )
            for name, array in one.inputs.tensors.items()
        ]
    return []


def _notes(prepared: Mapping[str, PreparedSide], distinct: Mapping[str, PreparedSide]) -> list[str]:
    notes = [note for one in prepared.values() for note in one.inputs.notes]
    if len(distinct) > 1:
        notes.append(
            "A and B received different tensors because their inputs or preprocessing differ"
        )
    return list(dict.fromkeys(notes))


def _difference(
    prepared: Mapping[str, PreparedSide], answers: Mapping[str, Answered]
) -> dict[str, OutputDifference] | None:
    if len(answers) < len(SIDES):
        return None
    a, b = (answers[side].outputs for side in SIDES)
    return differences(a, b, prepared[SIDES[0]].metadata.outputs, prepared[SIDES[0]].declared)
