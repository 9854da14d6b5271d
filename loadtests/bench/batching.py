"""What `servegate batching tune` is worth: against Triton's defaults, a whole grid, and itself.

For each model of `batching_models.py`, all on one throw-away Triton of the gateway:

    search     the search of `servegate batching tune`
    grid       every setup that the search chose from, each with a search for its highest rate
    defaults   the winner against no batching, and against `dynamic_batching { }`, in turns
    winners    the winner of the search against that of the grid, in turns

In turns: a measurement of one side, one of the other, each at the highest rate that it bears just
then, see `workbench/tuning/confirmation.py`; ten such pairs, one ratio with its 95 % interval.

Prints what it finds and writes `loadtests/results/batching-*.json`, after each step; the report
takes of each model the newest of every step.
"""

import argparse
import asyncio
import dataclasses
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.bench import batching_models, machine
from loadtests.bench.load_pairs import url
from loadtests.bench.results import FOLDER, today, write_page
from loadtests.bench.start import BIN, free_ports, until_ready
from loadtests.bench.started import Programs, listening
from serve.capacity.measurements import Ask, Measured, OpenLoopTrial
from serve.capacity.search import Halving, candidates
from serve.capacity.setup import BatchSetup
from serve.cli.client import connect
from serve.core.objectives import Objective
from serve.workbench.loadtest import rate_search
from serve.workbench.tuning.bench import LoadBench, opened
from serve.workbench.tuning.cli.tuner import TuningLoad
from serve.workbench.tuning.confirmation import Duel
from serve.workbench.tuning.execution_counts import Statistics
from serve.workbench.tuning.measurements import Measuring
from serve.workbench.tuning.setups import fields_of_setup

PAIRS = 10
MOST_ROUNDS = 30  # of a comparison, those included in which a side has not found its level yet
_PRECISION = 0.05  # of the highest rate of a setup of the grid
_DELAYS = (0.0, 0.02, 0.1)  # of the objective's limit


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured of a model: `unit` is seconds of a short measurement."""

    name: str
    objective: str
    largest: int
    first: float  # calls/s at which a search in the grid begins
    unit: float

    @property
    def pushed(self) -> str:
        """Its name at the gateway, which may have models of its own."""
        return f"{self.name}-measured"


SUBJECTS = (
    Subject("digits", "p99<20ms", 32, 200.0, 2.0),
    Subject("transformer", "p99<60ms", 16, 20.0, 3.0),
    Subject("residual", "p99<800ms", 8, 4.0, 8.0),
)


class Place:
    """The bench with one model: loads setups and measures them. `made` counts measurements."""

    def __init__(self, bench: LoadBench, measuring: Measuring, config: Mapping[str, Any]) -> None:
        self._bench = bench
        self._measuring = measuring
        self._config = config
        self._loaded: BatchSetup | None = None
        self.made = 0

    async def measure(self, ask: Ask) -> Measured:
        """One measurement of its setup."""
        if ask.setup != self._loaded:
            await self._bench.load(fields_of_setup(ask.setup, self._config, {}))
            self._loaded = ask.setup
        self.made += 1
        return (await self._measuring.measure(ask)).measured


async def search(place: Place, subject: Subject, grid: Sequence[BatchSetup]) -> dict[str, Any]:
    """What the search comes to, and what it has predicted for the whole grid."""
    halving, began = _halving(subject, grid), time.monotonic()
    while (ask := halving.next()) is not None:
        halving.told(await place.measure(ask))
    best = halving.best()
    assert best is not None, "no configuration met the objective"
    print(f"  search: {best.setup}, {best.rate:.0f}/s after {place.made} measurements", flush=True)
    return {
        "setup": dataclasses.asdict(best.setup),
        "text": str(best.setup),
        "rate": best.rate,
        "measurements": place.made,
        "seconds": time.monotonic() - began,
        "predicted": [
            {
                "setup": dataclasses.asdict(one.setup),
                "rate": one.predicted,
                "p99": one.predicted_p99,
                "estimate": one.estimate,
                "trials": one.trials,
            }
            for one in halving.standings
        ],
    }


async def whole_grid(
    place: Place,
    subject: Subject,
    grid: Sequence[BatchSetup],
    keep: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """The highest rate of every setup, found without any knowledge of the others."""
    objective, rows, began = Objective.parse(subject.objective), [], time.monotonic()
    before = place.made
    for setup in grid:

        async def attempt(
            rate: float, number: int, setup: BatchSetup = setup
        ) -> rate_search.RateTrial:
            told = await place.measure(OpenLoopTrial(setup, rate))
            why = "" if told.passes(rate, objective) else "missed"
            return rate_search.RateTrial(rate, not why, why=why, achieved=told.rate, p99=told.p99)

        found = await rate_search.find_max(
            attempt, first=subject.first, most=100_000.0, precision=_PRECISION, trials=20
        )
        passed = [one.p99 for one in found.trials if one.passed and one.rate == found.rate]
        p99 = sorted(passed)[len(passed) // 2] if passed else math.nan
        row = {"setup": dataclasses.asdict(setup), "rate": found.rate, "p99": p99}
        rows.append(row | {"text": str(setup), "trials": len(found.trials)})
        print(f"  grid {len(rows)}/{len(grid)}: {setup}: {found.rate:.0f}/s", flush=True)
        page = {"rows": rows, "measurements": place.made - before}
        keep(page | {"seconds": time.monotonic() - began})
    return page | {"seconds": time.monotonic() - began}


async def in_turns(
    place: Place,
    subject: Subject,
    name: str,
    sides: tuple[BatchSetup, BatchSetup],
    at: tuple[float, float],
) -> dict[str, Any]:
    """The second side ÷ the first, of so many pairs."""
    objective, duel = Objective.parse(subject.objective), Duel(*at)
    setups = dict(zip(duel.sides, sides, strict=True))
    for _ in range(MOST_ROUNDS):
        met = {}
        for side in duel.order:
            rate = duel.sides[side].rate
            told = await place.measure(OpenLoopTrial(setups[side], rate))
            met[side] = told.passes(rate, objective)
        duel.told(*(met[side] for side in duel.sides))
        if len(duel.rounds) == PAIRS:
            break
    found = duel.compared()
    print(
        f"  {name}: {found.ratio:.3f} ({found.low:.3f} to {found.high:.3f}, {found.rounds} pairs)",
        flush=True,
    )
    texts = {"baseline": str(sides[0]), "winner": str(sides[1])}
    pairs = [dataclasses.asdict(each) for each in duel.rounds]
    return {"ratio": dataclasses.asdict(found), "setups": texts, "pairs": pairs}


async def one_model(
    subject: Subject, admin: str, wanted: Sequence[str], keep: Callable[[dict[str, Any]], None]
) -> None:
    """All measurements of one model; `keep` gets the page after each step."""
    objective = Objective.parse(subject.objective)
    delays = [share * objective.limit for share in _DELAYS]
    grid = candidates(subject.largest, instances=2, objective=objective, delays=delays)
    page: dict[str, Any] = {**dataclasses.asdict(subject), "grid_size": len(grid)}
    async with (
        connect(admin, None, timeout=60.0).asynchronous() as client,
        opened(client, subject.pushed, 1, {}, "") as bench,
    ):
        statistics = Statistics(bench.http, bench.name, bench.version)
        config = await statistics.config()
        given = TuningLoad("1", ("random",), None)
        workload, _ = await asyncio.to_thread(given.workload, bench, dict)
        measuring = Measuring(
            workload, objective, statistics, unit=subject.unit, stop=asyncio.Event()
        )
        place = Place(bench, measuring, config)
        page["search"] = await search(place, subject, grid)
        keep(page)
        best, rate = _setup(page["search"]["setup"]), float(page["search"]["rate"])
        for name, other in _defaults(subject).items() if "defaults" in wanted else ():
            sides = (other, best)
            page[name] = await in_turns(place, subject, name, sides, (rate / 2, rate))
            keep(page)
        if "grid" in wanted:
            page["grid"] = await whole_grid(
                place, subject, grid, lambda part: keep({**page, "grid": part})
            )
            first = max(page["grid"]["rows"], key=lambda row: float(row["rate"]))
            sides, at = (_setup(first["setup"]), best), (float(first["rate"]), rate)
            page["winners"] = await in_turns(place, subject, "winners", sides, at)
            keep(page)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [one.name for one in SUBJECTS]
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--steps", nargs="*", choices=("defaults", "grid"), default=None)
    asked = parser.parse_args()
    steps = asked.steps if asked.steps is not None else ("defaults", "grid")
    found: dict[str, Any] = {"date": today(), "machine": machine.describe(), "models": {}}
    path = FOLDER / f"batching-{'-'.join((*steps, *asked.only, today()))}.json"
    with tempfile.TemporaryDirectory() as scratch, Programs(Path(scratch)) as programs:
        admin = _gateway(programs, Path(scratch))
        for subject in SUBJECTS:
            if subject.name not in asked.only:
                continue
            print(f"{subject.name}, {subject.objective}", flush=True)
            _push(subject, Path(scratch), admin)

            def keep(page: dict[str, Any], name: str = subject.name) -> None:
                found["models"][name] = page
                write_page(path, found)

            asyncio.run(one_model(subject, admin, steps, keep))


def _halving(subject: Subject, grid: Sequence[BatchSetup]) -> Halving:
    return Halving(grid, Objective.parse(subject.objective))


def _defaults(subject: Subject) -> dict[str, BatchSetup]:
    return {
        "no batching": BatchSetup(subject.largest, batches=False),
        "dynamic_batching {}": BatchSetup(subject.largest),
    }


def _setup(page: Mapping[str, Any]) -> BatchSetup:
    return BatchSetup(**{**page, "preferred": tuple(page["preferred"])})


def _gateway(programs: Programs, folder: Path) -> str:
    """A gateway with a Triton that is left alone; the admin port's URL."""
    http, grpc, metrics, admin = free_ports(4)
    process = programs.start(
        "gateway",
        [
            *(str(BIN / "servegate"), "up", "--replicas", "1", "--state", str(folder / "state")),
            *("--http-port", str(http), "--grpc-port", str(grpc), "--log-level", "error"),
            *("--metrics-port", str(metrics), "--admin-port", str(admin), "--workers", "1"),
        ],
    )
    programs.wait("gateway", process, partial(listening, http, admin))
    until_ready(f"{url(http)}/v2/health/live", time.monotonic())
    return url(admin)


def _push(subject: Subject, folder: Path, admin: str) -> None:
    source = batching_models.write(subject.name, folder / "models")
    command = [str(BIN / "servegate"), "model", "push", str(source), subject.pushed, "--wait"]
    subprocess.run([*command, "--admin-url", admin], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
