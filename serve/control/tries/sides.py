"""One side of a try: its input made ready, its call, what the call took, and its answer shown.

Where the time of a call went: the difference of what Triton has counted before and after it.

Triton counts for each version, not for each call. So the difference is this call's own only if no
other call of the version was counted meanwhile; else it is an average over all of them. It counts a
call a moment after it has answered it: who asks too early asks again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from serve.control.gateway import Answered, GatewayClient
from serve.control.recorded import RecordedDocuments
from serve.control.tries.outputs import output_line
from serve.control.tries.records import Latency, OutputLine, TryFailure, TrySide
from serve.control.tries.requests import TryRequest
from serve.control.tries.versions import TriedVersions
from serve.core.errors import ServegateError
from serve.tensors.input_forms import GivenInput, Inputs, read_inputs
from serve.tensors.metadata import Metadata
from serve.tensors.output_kinds import Declared, fitting, kinds_of
from serve.tensors.preprocessing import ImageSteps, parse

# --- where the time of a call went ----------------------------------------------------------------


_PARTS = ("queue", "compute_input", "compute_infer", "compute_output")
_NS = 1e-9  # seconds
Statistics = Mapping[str, Any]


def counted(before: Statistics | None, after: Statistics | None) -> int:
    """How many calls that succeeded were counted between two readings; 0 for none known."""
    return max(_rise(before, after, "success", "count"), 0) if before and after else 0


def latency(seconds: float, before: Statistics | None, after: Statistics | None) -> Latency:
    """Of a call of `seconds`; the readings are Triton's statistics of the version that answered."""
    calls = counted(before, after)
    if not calls:
        return Latency(round_trip=seconds)
    parts = {part: _rise(before, after, part, "ns") * _NS / calls for part in _PARTS}
    if any(value < 0 for value in parts.values()):  # a replica has started anew meanwhile
        return Latency(round_trip=seconds)
    is_exact = calls == 1 and _rise(before, after, "fail", "count") == 0
    inside = _rise(before, after, "success", "ns") * _NS
    return Latency(
        round_trip=seconds,
        gateway_and_network=max(seconds - inside, 0.0) if is_exact else None,
        exact=is_exact,
        calls=calls,
        **parts,
    )


def _rise(before: Statistics | None, after: Statistics | None, part: str, unit: str) -> int:
    return _value(after, part, unit) - _value(before, part, unit)


def _value(statistics: Statistics | None, part: str, unit: str) -> int:
    try:
        return int((statistics or {})["inference_stats"][part][unit])
    except (KeyError, TypeError, ValueError):
        return 0


# --- one side of a try ----------------------------------------------------------------------------


_LOOKS = 5  # at what Triton has counted, after a call
_PAUSE = 0.02  # seconds between two of them


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSide:
    """What is sent. `candidates` are the versions that may answer; `steps` by input.

    `declared` is how the outputs are to be read.
    """

    selector: str
    candidates: tuple[int, ...]
    metadata: Metadata
    inputs: Inputs
    steps: Mapping[str, ImageSteps]
    declared: Declared


class Sides:
    """Prepares and calls; `pause` sleeps for some seconds."""

    def __init__(
        self,
        gateway: GatewayClient,
        versions: TriedVersions,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._gateway = gateway
        self._versions = versions
        self._pause = pause

    def __repr__(self) -> str:
        return f"<Sides of {self._gateway!r}>"

    async def prepare(
        self, ask: TryRequest, selector: str, given: Mapping[str, GivenInput], seed: int
    ) -> PreparedSide:
        """The tensors as this version wants them; `Invalid` for input that does not fit it."""
        metadata = await self._gateway.metadata(ask.model, selector)
        candidates = self._versions.candidates(ask.model, selector)
        number = candidates[0] if candidates else None
        recorded = self._versions.of(ask.model, number)
        document = recorded.preprocessing
        inputs = await asyncio.to_thread(
            read_inputs,
            ask.model,
            metadata.inputs,
            given,
            document,
            rng=np.random.default_rng(seed),
            batch=ask.batch,
        )
        steps = parse(document).inputs if document else {}
        pictures = {name: one for name, one in steps.items() if isinstance(one, ImageSteps)}
        declared = kinds_of(recorded.output_kinds, recorded.labels, metadata.outputs)
        return PreparedSide(selector, candidates, metadata, inputs, pictures, declared)

    async def call(
        self, ask: TryRequest, side: str, ready: PreparedSide
    ) -> tuple[TrySide, Answered | None]:
        """Call it once; an error is the side's own."""
        readings = {number: await self._counted(ask.model, number) for number in ready.candidates}
        try:
            answered = await self._gateway.infer(
                ask.model,
                ready.selector,
                ready.inputs.tensors,
                datatypes=ready.inputs.datatypes,
                via=ask.via,
            )
        except ServegateError as error:
            return failed(side, ready.selector, error), None
        took = await self._latency(ask.model, answered, readings)
        return await self._side(ask, side, ready, answered, took), answered

    async def _side(
        self, ask: TryRequest, side: str, ready: PreparedSide, answered: Answered, took: Latency
    ) -> TrySide:
        number = int(answered.version) if answered.version.isdigit() else None
        recorded = self._versions.of(ask.model, number)
        lines = await asyncio.to_thread(_lines, ask, ready, answered, recorded)
        return TrySide(
            side=side,
            asked=ready.selector,
            version=answered.version,
            by=answered.by,
            generation=answered.generation,
            flavour=self._versions.flavour(ask.model, number) if number else "",
            error=None,
            seconds=answered.seconds,
            latency=took,
            outputs=lines,
        )

    async def _latency(
        self, model: str, answered: Answered, readings: Mapping[int, Statistics | None]
    ) -> Latency:
        """From what was counted of the version that answered, as soon as it has been."""
        number = int(answered.version) if answered.version.isdigit() else 0
        before = readings.get(number)
        if before is None:
            return Latency(round_trip=answered.seconds)
        after = None
        for look in range(_LOOKS):
            if look:
                await self._pause(_PAUSE)
            after = await self._counted(model, number)
            if counted(before, after):
                break
        return latency(answered.seconds, before, after)

    async def _counted(self, model: str, number: int) -> Statistics | None:
        """A comfort: a call is a call without it."""
        try:
            return await self._gateway.statistics(model, number)
        except ServegateError:
            return None


def _lines(
    ask: TryRequest, ready: PreparedSide, answered: Answered, recorded: RecordedDocuments
) -> list[OutputLine]:
    specs = ready.metadata.outputs
    declared = kinds_of(recorded.output_kinds, recorded.labels, specs)
    readable = fitting(declared, answered.outputs, specs)
    return [
        output_line(
            name,
            answered.outputs,
            answered.datatypes[name],
            spec=specs.get(name),
            declared=readable.get(name),
            labels=recorded.labels.get(name, ()),
            scores=ask.top_k,
        )
        for name in answered.outputs
    ]


def failed(side: str, asked: str, error: ServegateError) -> TrySide:
    """A side that has no answer."""
    told = TryFailure(error.code, error.what, error.why, error.try_this)
    return TrySide(side, asked, "", "", None, "", told, None, None, [])
