"""Performing one evaluation: what is left of it, kept chunk by chunk, and its report in the end."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from serve.core.errors import ServegateError
from serve.statistics.gates import parse_gates
from serve.workbench.evaluation.evaluation import Evaluation, EvaluationState, spread
from serve.workbench.evaluation.plan import Planner
from serve.workbench.evaluation.records import Keeping
from serve.workbench.evaluation.report import finite, report
from serve.workbench.evaluation.results import RowResult
from serve.workbench.evaluation.run import Infers, RowRun

_CHUNK = 1000  # rows that are kept together
_EVERY = 5.0  # seconds after which fewer are kept, too
_LAST = 2.0  # seconds for what is left to be kept when the process stops


async def report_on(evaluation: Evaluation, results: Sequence[RowResult]) -> dict[str, Any]:
    """Every number of some results of an evaluation; it is counted in a thread."""
    gates = parse_gates(evaluation.request.gates, two=evaluation.two)
    page = await asyncio.to_thread(report, results, evaluation.kind, gates, two=evaluation.two)
    found: dict[str, Any] = finite(page)
    return found


class EvaluationRunner:
    """The evaluation that runs now. `changed` is told of every state and of how far it is."""

    def __init__(
        self,
        evaluation: Evaluation,
        planner: Planner,
        gateway: Infers,
        keeping: Keeping,
        *,
        wall: Callable[[], float],
        changed: Callable[[Evaluation], None],
    ) -> None:
        self.evaluation = evaluation
        self.results: dict[int, RowResult] = {}
        self.has_ended = asyncio.Event()
        self._planner = planner
        self._gateway = gateway
        self._keeping = keeping
        self._wall = wall
        self._changed = changed
        self._fresh: list[RowResult] = []
        self._chunks = 0
        self._kept_at = 0.0
        self._failed = 0
        self._run: RowRun | None = None
        self._is_stopping = False
        self._keeping_now = asyncio.Lock()
        self._reported: tuple[int, dict[str, Any]] | None = None

    def __repr__(self) -> str:
        return f"<EvaluationRunner {self.id} {len(self.results)} of {self.evaluation.total}>"

    @property
    def id(self) -> str:
        """Of the evaluation."""
        return self.evaluation.id

    async def stop(self) -> None:
        """Ask no more rows, and return when what was in flight has ended."""
        self._is_stopping = True
        if self._run is not None:
            self._run.is_stopping = True
        await self.has_ended.wait()

    async def perform(self) -> None:
        """Ask the rows that have no answer yet; ended by `stop`, `Unavailable` and others."""
        self.results, self._chunks = await self._keeping.results(self.id)
        self._failed = sum(one.has_failed for one in self.results.values())
        await self._move(EvaluationState.RUNNING, begun=self._wall())
        view = await self._planner.view(self.evaluation)
        plan = await self._planner.plan(self.evaluation, view)
        rows = spread(len(view), self.evaluation.request.limit)
        left = [row for row in rows if row not in self.results or self.results[row].has_failed]
        self._kept_at = self._wall()
        self._run = RowRun(plan, view, self._gateway, self._take, is_stopping=self._is_stopping)
        try:
            if left and not self._is_stopping:
                await self._run.warm_up(left[0])
                await self._run.perform(left)
        except asyncio.CancelledError:
            with contextlib.suppress(ServegateError, TimeoutError):
                async with asyncio.timeout(_LAST):
                    await self._keep()
                    await self._write_report(EvaluationState.INTERRUPTED)
            raise
        except BaseExceptionGroup:
            await self._keep()
            await self._write_report(self.evaluation.state)
            raise
        await self._keep()
        is_whole = all(row in self.results for row in rows)
        await self._write_report(EvaluationState.DONE if is_whole else EvaluationState.CANCELLED)

    async def report(self) -> dict[str, Any] | None:
        """Every number so far."""
        if not self.results:
            return None
        count = len(self.results)
        if self._reported is None or self._reported[0] != count:
            results = [self.results[row] for row in sorted(self.results)]
            self._reported = (count, await report_on(self.evaluation, results))
        return self._reported[1]

    async def _take(self, results: Sequence[RowResult]) -> None:
        for one in results:
            before = self.results.get(one.row)
            self._failed += one.has_failed - (before is not None and before.has_failed)
            self.results[one.row] = one
        self._fresh += results
        self._set(done=len(self.results), failed=self._failed)
        if len(self._fresh) >= _CHUNK or self._wall() - self._kept_at >= _EVERY:
            await self._keep()

    async def _keep(self) -> None:
        """Keep what is fresh, and how far it is."""
        async with self._keeping_now:
            fresh, self._fresh = self._fresh, []
            if not fresh:
                return
            try:
                await self._keeping.add(self.id, self._chunks + 1, fresh)
            except BaseException:
                self._fresh = fresh + self._fresh
                raise
            self._chunks += 1
            self._kept_at = self._wall()
            await self._keeping.write(self.evaluation)

    async def _write_report(self, state: EvaluationState) -> None:
        """The report of what there is, then the last state."""
        self._reported = None  # rows that were asked again do not change their number
        page = await self.report()
        passed = None
        if page is not None:
            await self._keeping.write_report(self.id, page)
            if state is EvaluationState.DONE and page["gates"]:
                passed = all(gate["passed"] for gate in page["gates"])
        await self._move(state, ended=self._wall(), passed=passed)

    async def _move(self, state: EvaluationState, **changes: Any) -> None:
        done, failed = len(self.results), self._failed
        moved = self.evaluation.changed(state=state, done=done, failed=failed, **changes)
        await self._keeping.write(moved)
        self.evaluation = moved
        self._changed(moved)

    def _set(self, **changes: Any) -> None:
        self.evaluation = self.evaluation.changed(**changes)
        self._changed(self.evaluation)
