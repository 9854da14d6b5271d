"""One tuning: search, then winner against the present configuration, within a budget of time.

    calibrate ─▶ try the setups that calculation says are best ─▶ best so far
                                                                     │ two fifths of the budget left
                                                                     ▼
                             in turns: present configuration, winner ─▶ ratio with its interval

Where no setup has met the objective, the present configuration is tried at lower and lower rates.

After each measurement the state is written. What does not fit into the budget is not begun, except
for the first round of a comparison: the search leaves time for it, but loading may take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from serve.capacity.measurements import Ask, Calibration, OpenLoopTrial
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid, NoControl, NotFound, ServegateError
from serve.workbench.loadtest.reports.amounts import rate_text, time_text
from serve.workbench.tuning.confirmation import Duel
from serve.workbench.tuning.measurements import MeasurementResult, Measuring
from serve.workbench.tuning.setups import fields_of_setup, setup_of
from serve.workbench.tuning.state import MeasurementEntry, TuningState, entry_of, step_of

ROUNDS = 10
_SEARCHING = 0.6  # of the budget, at most
_SEARCH_OVER = "The search was ended by the budget: more time may find more."
_ROUNDS_OVER = "The budget was spent before the comparison had enough rounds."
_OVER = (_SEARCH_OVER, _ROUNDS_OVER)  # which another session may make good
LOWER = "lower rate"  # the step of a trial below everything that was missed
_DOWN, _LOWEST = 3.0, 5  # how far each of them goes down, and how many there are
_AROUND = 2.0  # seconds that a measurement takes besides, until that was seen


class BenchHost(Protocol):
    """Where setups are loaded, see `bench.py`."""

    async def load(self, fields: Mapping[str, Any]) -> None:
        """Run with these fields; raises why they do not load."""
        ...

    def require(self) -> None:
        """Raise why there is no bench any more, if so."""
        ...


@dataclass(frozen=True, slots=True)
class Now:
    """How a tuning goes: `text` is what is being measured, `best` what was found so far.

    `left`: seconds of the budget. `share`: of the work that is expected, 0 to 1.
    """

    text: str
    best: str
    left: float
    share: float


class Session:
    """Goes on with a state until it is over, or the budget is spent; `run` does it.

    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        bench: BenchHost,
        measuring: Measuring,
        state: TuningState,
        folder: Path,
        *,
        budget: float,
        clock: Callable[[], float],
        tell: Callable[[Now], None],
    ) -> None:
        self._bench = bench
        self._measuring = measuring
        self._state = state
        self._folder = folder
        self._budget = budget
        self._clock = clock
        self._tell = tell
        self._began = clock()
        self._before = state.spent
        self._around = _AROUND
        self._loaded: BatchSetup | None = None
        self._present = setup_of(state.subject.config)

    def __repr__(self) -> str:
        return f"<Session {self._state.subject.model} {len(self._state.entries)} measurements>"

    async def run(self) -> None:
        """Search, then compare; or find a rate that the present configuration can take."""
        self._state.notes[:] = [each for each in self._state.notes if each not in _OVER]
        await self._search()
        best = self._state.search.best()
        if best is not None and best.setup != self._present:
            await self._compare(best.setup, best.rate)
        elif best is None:
            await self._go_lower()

    async def _search(self) -> None:
        search, objective = self._state.search, self._state.subject.target
        while (ask := search.next()) is not None:
            round_of_both = 2 * (self._measuring.seconds(ask) + self._around)
            if not self._fits(ask, min(_SEARCHING * self._budget, self._budget - round_of_both)):
                self._note(_SEARCH_OVER)
                return
            self._show(ask)
            try:
                await self._load(ask.setup)
            except (NotFound, NoControl):
                raise
            except ServegateError as error:
                search.failed(str(error))
                self._keep(MeasurementEntry(self._at, step_of(ask), ask.setup, why=str(error)))
                continue
            result = await self._measure(ask)
            search.told(result.measured)
            entry = entry_of(self._at, ask, result.measured, objective)
            self._keep(replace(entry, doubt=result.doubt, repeated=result.repeated))
            self._require_possible(ask, entry)

    def _require_possible(self, ask: Ask, entry: MeasurementEntry) -> None:
        """`Invalid` when even one call at a time misses the objective."""
        limit = self._state.subject.target.limit
        alone = isinstance(ask, Calibration) and ask.callers == 1
        if alone and entry.p50 > limit:
            raise Invalid(
                f"no configuration can meet {self._state.subject.objective}",
                why=f"a single call already takes {time_text(entry.p50)} (median)",
                try_this="use --slo with a higher limit",
            )

    async def _compare(self, winner: BatchSetup, rate: float) -> None:
        state = self._state
        if state.duel is None or state.rival != winner:
            state.rival = winner
            known = [one for one in state.search.standings if one.setup == self._present]
            state.duel = Duel((known[0].estimate if known else 0.0) or rate / 2, rate)
        setups = {"baseline": self._present, "winner": winner}
        while len(state.duel.rounds) < ROUNDS and not state.duel.compared().is_decided:
            asks = {
                name: OpenLoopTrial(setups[name], side.rate, step=name)
                for name, side in state.duel.sides.items()
            }
            if state.duel.rounds and not self._fits(asks["winner"], self._budget, 2):
                if state.duel.compared().rounds < 3:
                    self._note(_ROUNDS_OVER)
                return
            met: dict[str, bool] = {}
            for name in state.duel.order:
                met[name] = await self._side(name, asks[name])
            state.duel.told(met["baseline"], met["winner"])
            state.save(self._folder)

    async def _go_lower(self) -> None:
        """Below the lowest rate at which a trial missed the objective, until one meets it."""
        missed = [one.rate for one in self._state.entries if one.passed is False]
        for _ in range(_LOWEST if missed else 0):
            ask = OpenLoopTrial(self._present, min(missed) / _DOWN, step=LOWER)
            if not self._fits(ask, self._budget) or await self._side(LOWER, ask):
                return
            missed.append(ask.rate)

    async def _side(self, name: str, ask: OpenLoopTrial) -> bool:
        """A trial that the search has not asked for; whether it has met the objective."""
        self._show(ask)
        await self._load(ask.setup)
        result = await self._measure(ask)
        entry = entry_of(self._at, ask, result.measured, self._state.subject.target)
        self._keep(replace(entry, doubt=result.doubt, repeated=result.repeated))
        return bool(entry.passed)

    async def _load(self, setup: BatchSetup) -> None:
        self._bench.require()
        if setup == self._loaded:
            return
        began = self._clock()
        self._loaded = None
        subject = self._state.subject
        await self._bench.load(fields_of_setup(setup, subject.config, subject.fields))
        self._loaded = setup
        self._around = max(_AROUND, self._clock() - began + 1.0)

    async def _measure(self, ask: Ask) -> MeasurementResult:
        began = self._clock()
        result = await self._measuring.measure(ask)
        times = 2 if result.repeated else 1
        taken = (self._clock() - began) / times - self._measuring.seconds(ask)
        self._around = 0.5 * (self._around + max(0.5, taken))
        if result.doubt:
            self._note(f"Some trials are unreliable: {result.doubt}")
        return result

    def _fits(self, ask: Ask, until: float, times: int = 1) -> bool:
        needed = times * (self._measuring.seconds(ask) + self._around)
        return self._clock() - self._began + needed <= until

    @property
    def _at(self) -> float:
        return self._before + self._clock() - self._began

    def _keep(self, entry: MeasurementEntry) -> None:
        self._state.entries.append(entry)
        self._state.spent = self._at
        self._state.save(self._folder)

    def _note(self, text: str) -> None:
        kind = text.partition(":")[0]
        if not any(one.startswith(kind) for one in self._state.notes):
            self._state.notes.append(text)

    def _show(self, ask: Ask) -> None:
        gone, best = self._clock() - self._began, self._state.search.best()
        loaded = (
            f"{ask.callers} calls in flight"
            if isinstance(ask, Calibration)
            else rate_text(ask.rate)
        )
        self._tell(
            Now(
                f"{step_of(ask)}: {ask.setup}, {loaded}",
                f"{rate_text(best.rate)} with {best.setup}" if best else "",
                max(0.0, self._budget - gone),
                min(1.0, gone / self._budget),
            )
        )
