"""Evaluations: asked for, worked off one at a time, stopped, resumed, and looked at."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from serve.control.artifacts.objects import Objects
from serve.control.gateway import GatewayClient
from serve.control.models import Models
from serve.core.errors import Conflict, NotFound, ServegateError, Unavailable, first_of
from serve.statistics.gates import JudgedGate, judge, parse_gates
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.evaluation import (
    WAITING,
    Evaluation,
    EvaluationRequest,
    EvaluationState,
)
from serve.workbench.evaluation.execution import EvaluationRunner, report_on
from serve.workbench.evaluation.plan import Planner
from serve.workbench.evaluation.records import KEPT, Keeping
from serve.workbench.evaluation.report import measured
from serve.workbench.evaluation.results import RowResult

MOST_WAITING = 32
_log = logging.getLogger("servegate.evaluations")
_LONGEST = 500  # characters of what went wrong
_LATER = 5.0  # seconds until the storage is tried again


class Evaluations:
    """The evaluations of one gateway. `wall`: seconds of the epoch; `new_id` names a new one."""

    def __init__(
        self,
        *,
        objects: Objects,
        datasets: Datasets,
        gateway: GatewayClient,
        models: Models,
        wall: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._keeping = Keeping(objects)
        self._datasets = datasets
        self._planner = Planner(datasets, gateway, models)
        self._gateway = gateway
        self._wall = wall
        self._new_id = new_id
        self._all: dict[str, Evaluation] = {}
        self._current: EvaluationRunner | None = None
        self._looked_at: tuple[str, int, dict[int, RowResult]] | None = None
        self._loading = asyncio.Lock()
        self._is_loaded = self._is_closed = False
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Evaluations {len(self._all)} current={self._current}>"

    async def run(self) -> None:
        """Work them off, for ever; what was running when the process ended is interrupted."""
        self._is_closed = False
        await self._datasets.sweep()
        try:
            while not self._is_loaded:
                try:
                    await self._load()
                except ServegateError as error:
                    _log.warning("cannot read the evaluations, will retry: %s", error)
                    await asyncio.sleep(_LATER)
            while True:
                waiting = [one for one in self._all.values() if one.state is EvaluationState.QUEUED]
                if waiting:
                    await self._perform(waiting[0])
                else:
                    await self._news.wait()
        finally:
            self._is_closed = True
            self._tell()

    # --- commands --------------------------------------------------------------------------------

    async def begin(self, request: EvaluationRequest, author: str) -> Evaluation:
        """Queue one; `Invalid` and `NotFound` say what does not go together."""
        parse_gates(request.gates, two=bool(request.b))
        await self._load()
        self._require_room()
        evaluation = await self._planner.begin(request, self._new_id(), author, self._wall())
        await self._keeping.begin(evaluation)
        self._set(evaluation)
        ended = [one.id for one in self._all.values() if not one.is_waiting]
        for old in ended[:-KEPT]:
            await self.remove(old)
        return evaluation

    async def cancel(self, identity: str) -> Evaluation:
        """Stop one that waits or runs; the calls in flight end first. Again is no mistake."""
        evaluation = await self.get(identity)
        if evaluation.state is EvaluationState.CANCELLED:
            return evaluation
        if not evaluation.is_waiting:
            raise Conflict(
                f"evaluation '{identity}' cannot be cancelled",
                why=f"its state is '{evaluation.state}'",
            )
        if self._current is not None and self._current.id == identity:
            await self._current.stop()
            return await self.get(identity)
        return await self._write(
            evaluation.changed(state=EvaluationState.CANCELLED, ended=self._wall())
        )

    async def resume(self, identity: str) -> Evaluation:
        """Queue one again that has ended with rows left or failed; `Conflict` otherwise."""
        evaluation = await self.get(identity)
        is_whole = evaluation.state is EvaluationState.DONE and not evaluation.failed
        if evaluation.is_waiting or is_whole:
            why = "every row has a result" if is_whole else f"its state is '{evaluation.state}'"
            raise Conflict(f"evaluation '{identity}' cannot be resumed", why=why)
        self._require_room()
        await self._planner.view(evaluation)
        return await self._write(
            evaluation.changed(state=EvaluationState.QUEUED, why="", ended=None, passed=None)
        )

    async def remove(self, identity: str) -> None:
        """Take one away with its results; `Conflict` while it waits or runs."""
        evaluation = await self.get(identity)
        if evaluation.is_waiting:
            raise Conflict(
                f"evaluation '{identity}' cannot be deleted",
                why=f"its state is '{evaluation.state}'",
                try_this=f"servegate eval cancel {identity}",
            )
        await self._keeping.remove(identity)
        self._all.pop(identity, None)
        self._tell()

    # --- questions -------------------------------------------------------------------------------

    async def all(self) -> tuple[Evaluation, ...]:
        """Every one that is kept, in the order in which they were asked for."""
        await self._load()
        return tuple(self._all.values())

    async def get(self, identity: str) -> Evaluation:
        """One; `NotFound`."""
        await self._load()
        if identity not in self._all:
            raise NotFound(
                f"there is no evaluation '{identity[:60]}'", try_this="servegate eval ls"
            )
        return self._all[identity]

    async def results(self, identity: str) -> tuple[Evaluation, list[RowResult]]:
        """One and its results so far, by row."""
        evaluation = await self.get(identity)
        if self._current is not None and self._current.id == identity:
            found = self._current.results
        else:
            known = self._looked_at
            if known is None or known[:2] != (identity, evaluation.done):
                read, _ = await self._keeping.results(identity)
                self._looked_at = known = (identity, evaluation.done, read)
            found = known[2]
        return evaluation, [found[row] for row in sorted(found)]

    async def report(self, identity: str) -> dict[str, Any] | None:
        """Every number of one, as far as it is; None before the first row."""
        evaluation = await self.get(identity)
        if self._current is not None and self._current.id == identity:
            return await self._current.report()
        known = await self._keeping.report(identity)
        if known is not None and evaluation.state is not EvaluationState.INTERRUPTED:
            return known
        _, results = await self.results(identity)
        return await report_on(evaluation, results) if results else None

    async def judge(self, identity: str, texts: Sequence[str]) -> tuple[JudgedGate, ...]:
        """Hold gates against one as far as it is; `Invalid`, `Conflict` before the first row."""
        evaluation = await self.get(identity)
        gates = parse_gates(texts, two=evaluation.two)
        page = await self.report(identity)
        if page is None:
            raise Conflict(f"evaluation '{identity}' has no results yet")
        return judge(gates, measured(page))

    async def watch(self, identity: str) -> AsyncIterator[Evaluation]:
        """One now, and again whenever it has changed, until it has ended or this plane stops."""
        told: Evaluation | None = None
        while True:
            news = self._news
            evaluation = await self.get(identity)
            if evaluation != told:
                told = evaluation
                yield evaluation
            if not evaluation.is_waiting or self._is_closed:
                return
            if news is self._news:
                await news.wait()

    # --- within ----------------------------------------------------------------------------------

    async def _perform(self, evaluation: Evaluation) -> None:
        self._current = EvaluationRunner(
            evaluation,
            self._planner,
            self._gateway,
            self._keeping,
            wall=self._wall,
            changed=self._set,
        )
        try:
            await self._current.perform()
        except Exception as error:  # whatever it is, the other evaluations go on
            first = first_of(error) if isinstance(error, BaseExceptionGroup) else error
            is_ours = isinstance(first, ServegateError)
            _log.warning("evaluation %s failed", evaluation.id, exc_info=None if is_ours else first)
            why = str(first) if is_ours else f"internal error in the control plane: {first!r}"
            last = self._current.evaluation.changed(
                state=EvaluationState.FAILED, why=why[:_LONGEST], ended=self._wall()
            )
            await self._try_write(last)
        finally:
            self._current.has_ended.set()
            self._current = self._looked_at = None
            self._tell()

    async def _try_write(self, evaluation: Evaluation) -> None:
        """Write it; where the storage is away, it is known to this process at least."""
        self._set(evaluation)
        try:
            await self._keeping.write(evaluation)
        except ServegateError as error:
            _log.warning("cannot store evaluation %s: %s", evaluation.id, error)

    async def _write(self, evaluation: Evaluation) -> Evaluation:
        await self._keeping.write(evaluation)
        self._set(evaluation)
        return evaluation

    def _set(self, evaluation: Evaluation) -> None:
        self._all[evaluation.id] = evaluation
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _require_room(self) -> None:
        waiting = [one for one in self._all.values() if one.state in WAITING]
        if len(waiting) >= MOST_WAITING:
            raise Unavailable(
                "the queue of evaluations is full",
                why=f"{MOST_WAITING} evaluations are queued or running",
                try_this="wait until one has finished, or run servegate eval cancel ID",
            )

    async def _load(self) -> None:
        """Read what is kept, once; the one that was running has been interrupted."""
        async with self._loading:
            if self._is_loaded:
                return
            for one in await self._keeping.all():
                stopped = one.state is EvaluationState.RUNNING
                known = one.changed(state=EvaluationState.INTERRUPTED) if stopped else one
                self._all.setdefault(known.id, known)
            self._is_loaded = True
