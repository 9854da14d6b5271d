"""Running: the rows of a dataset, asked of one or two versions through the gateway.

Each row is asked of one side and then of the other, and which goes first alternates from call to
call, so that neither meets a busier machine. One call of each before is not counted: it opens
connections. Rows of one call that fails are asked again one by one, so that one bad row does not
take the others with it.

Rows become tensors in one thread: more would not be faster, and CPython 3.11 may fail when
two threads read headers of NPY files at once (python/cpython#106905).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from serve.control.gateway import Answered
from serve.core.errors import Invalid, ServegateError, Unavailable
from serve.tensors.datatypes import Array
from serve.tensors.input_forms import Inputs
from serve.workbench.evaluation.dataset import DatasetRows
from serve.workbench.evaluation.results import LONGEST_ERROR, RowResult, SideOutput
from serve.workbench.evaluation.sides import EvaluatedSide

HOPELESS = 100  # rows that fail one after the other, when none has been answered in this run
_TIMEOUT = 60.0  # seconds of a call


class Infers(Protocol):
    """What calls versions: `serve.control.gateway.Gateway`."""

    async def infer(
        self,
        model: str,
        selector: str,
        inputs: Mapping[str, Array],
        *,
        datatypes: Mapping[str, str],
        via: str,
        timeout: float,  # noqa: ASYNC109 - as the gateway has it
    ) -> Answered:
        """One call."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How rows are asked: `sides` are A, and B where there is one."""

    sides: tuple[EvaluatedSide, ...]
    via: str
    concurrency: int
    batch: int


@dataclass(slots=True)
class RowRun:
    """One run over some rows. `take` gets the results as they come, whole calls at a time."""

    plan: RowPlan
    view: DatasetRows
    gateway: Infers
    take: Callable[[Sequence[RowResult]], Awaitable[None]]
    is_stopping: bool = False
    _begun: int = 0
    _good: int = 0
    _bad: int = 0
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    async def perform(self, rows: Iterable[int]) -> None:
        """Ask all rows, or until `is_stopping`; `Unavailable` when not one is answered."""
        calls = iter(_batches(rows, self.plan.batch))
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self.plan.concurrency):
                    tasks.create_task(self._work(calls))
        finally:
            self._thread.shutdown(wait=False)

    async def warm_up(self, row: int) -> None:
        """One call of each side that is not counted; what goes wrong shows in what follows."""
        for side in self.plan.sides:
            try:
                await self._call(side, [await self._tensors(side, row)])
            except ServegateError:
                continue

    async def _work(self, calls: Iterable[list[int]]) -> None:
        for rows in calls:
            if self.is_stopping:
                return
            order = list(range(len(self.plan.sides)))
            if self._begun % 2:
                order.reverse()
            self._begun += 1
            told: dict[int, list[SideOutput]] = {}
            for place in order:
                told[place] = await self._asked(self.plan.sides[place], rows)
            results = [
                self._result(row, [told[p][i] for p in sorted(told)]) for i, row in enumerate(rows)
            ]
            await self.take(results)
            self._count(results)

    async def _asked(self, side: EvaluatedSide, rows: Sequence[int]) -> list[SideOutput]:
        """What one side says of some rows, or why it does not."""
        inputs: list[Inputs] = []
        for row in rows:
            try:
                inputs.append(await self._tensors(side, row))
            except ServegateError as error:
                if len(rows) == 1:
                    return [_failed(error)]
                return await self._one_by_one(side, rows)
        try:
            return await self._call(side, inputs)
        except ServegateError as error:
            if len(rows) == 1:
                return [_failed(error)]
            return await self._one_by_one(side, rows)

    async def _one_by_one(self, side: EvaluatedSide, rows: Sequence[int]) -> list[SideOutput]:
        return [told for row in rows for told in await self._asked(side, [row])]

    async def _tensors(self, side: EvaluatedSide, row: int) -> Inputs:
        vector = self.view.vector(row)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, lambda: side.tensors(self.view.cells(row), vector)
        )

    async def _call(self, side: EvaluatedSide, inputs: Sequence[Inputs]) -> list[SideOutput]:
        answer = await self.gateway.infer(
            side.model,
            str(side.version),
            _together(inputs),
            datatypes=inputs[0].datatypes,
            via=self.plan.via,
            timeout=_TIMEOUT,
        )
        if answer.version not in ("", str(side.version)):
            raise Invalid(f"version {answer.version} answered instead of version {side.version}")
        return side.told(answer.outputs, len(inputs), answer.seconds)

    def _result(self, number: int, told: Sequence[SideOutput]) -> RowResult:
        row = self.view.row(number)
        b = told[1] if len(told) > 1 else None
        label = self.plan.sides[0].label(row.label)
        return RowResult(number, label, row.name, row.slices, told[0], b)

    def _count(self, results: Sequence[RowResult]) -> None:
        """Give up when nothing is ever answered."""
        failed = [one for one in results if one.has_failed]
        self._good += len(results) - len(failed)
        self._bad += len(failed)
        if failed and not self._good and self._bad >= HOPELESS:
            last = failed[-1]
            why = last.a.error or (last.b.error if last.b else "")
            raise Unavailable(f"all of the first {self._bad} rows failed", why=why)


def _failed(error: ServegateError) -> SideOutput:
    return SideOutput(error=str(error)[:LONGEST_ERROR] or error.code)


def _together(inputs: Sequence[Inputs]) -> Mapping[str, Array]:
    """The rows of several as one batch; `Invalid` when their shapes differ."""
    if len(inputs) == 1:
        return inputs[0].tensors
    try:
        return {
            name: np.concatenate([one.tensors[name] for one in inputs])
            for name in inputs[0].tensors
        }
    except (ValueError, KeyError) as error:
        raise Invalid("the rows of a batch have different shapes", why=str(error)) from error


def _batches(rows: Iterable[int], size: int) -> Iterable[list[int]]:
    left = iter(rows)
    while batch := list(islice(left, size)):
        yield batch
