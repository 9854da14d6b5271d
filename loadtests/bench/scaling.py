"""Every scaler under every load: late calls against what replicas cost, seed by seed.

    python -m loadtests.bench.scaling --seeds 101-120 --trace TRACE.csv

The trace is the conversation trace of Azure's LLM inference of 2023 (CC-BY-4.0), which the project
does not ship: https://github.com/Azure/AzurePublicDataset, `data/AzureLLMInferenceTrace_conv.csv`.

Prints a line for each load and seed, and writes `loadtests/results/scaling-*.json`, after each.
`loadtests.bench.scaling_report` makes the table and the picture of it.
"""

import argparse
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from loadtests.bench import machine
from loadtests.bench.results import FOLDER, today, write_page
from serve.capacity.service import ServiceTime
from serve.workbench.simulator.comparison import Scene, SimulationResult, compare, variants
from serve.workbench.simulator.loads import LOADS, Floats, repeated
from serve.workbench.simulator.seen import SimulatedServer
from serve.workbench.simulator.traces import read_times

AZURE = "azure-conv"
# Fixed and per row as 4 to 1; full batches keep the objective with what waits before them.
SCENE = Scene(
    SimulatedServer(ServiceTime(0.16, 0.04, scatter=0.1), largest=8, limit=2.0, cold_start=60.0),
    mean=100.0,
    seconds=3600.0,
)
PROCESSES = 2


def tasks(loads: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, int]]:
    """Seed by seed, so that what is there after a while has all loads."""
    return [(load, seed) for seed in seeds for load in loads]


def played(
    scene: Scene, load: str, seed: int, scalers: Sequence[str], trace: Path | None
) -> list[SimulationResult]:
    """One load with one seed, in a process of its own."""
    those = [each for each in variants() if not scalers or each.scaler in scalers]
    times = None
    if load == AZURE:
        if trace is None:
            raise SystemExit(f"{AZURE} needs --trace")
        times, scene = _of_trace(trace, scene, seed)
    return list(compare(scene, load, seed, those, times=times))


def _of_trace(path: Path, scene: Scene, seed: int) -> tuple[Floats, Scene]:
    """The trace at the scene's mean rate, for as long as it lasts."""
    with path.open(newline="") as lines:
        trace = read_times(lines, path.name)
    seconds = float(int(trace[-1]))
    times = repeated(trace, scene.mean, seed=seed)
    return times[times < seconds], dataclasses.replace(scene, seconds=seconds)


def all_played(
    scene: Scene,
    loads: Sequence[str],
    seeds: Sequence[int],
    scalers: Sequence[str],
    trace: Path | None,
) -> Iterator[list[SimulationResult]]:
    """As they are done, in two processes."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        wanted = [
            pool.submit(played, scene, load, seed, scalers, trace)
            for load, seed in tasks(loads, seeds)
        ]
        for done in as_completed(wanted):
            yield done.result()


def main() -> None:
    """The command line."""
    asked = _asked()
    scene = dataclasses.replace(SCENE, mean=asked.mean)
    loads = asked.loads or [*LOADS, *([AZURE] if asked.trace else [])]
    page: dict[str, Any] = {
        "date": today(),
        "machine": machine.describe(),
        "scene": {"mean": scene.mean, "seconds": SCENE.seconds, "server": _server()},
        "seeds": asked.seeds,
        "results": [],
    }
    path = asked.out or FOLDER / f"scaling-{today()}.json"
    began, count = time.monotonic(), len(tasks(loads, asked.seeds))
    for number, found in enumerate(
        all_played(scene, loads, asked.seeds, asked.only, asked.trace), start=1
    ):
        page["results"] += [dataclasses.asdict(one) for one in found]
        passed = time.monotonic() - began
        left = passed / number * (count - number)
        first = found[1] if len(found) > 1 else found[0]
        print(
            f"{number}/{count} {first.load} seed {first.seed}: {first.scaler} "
            f"{100 * first.late:.2f} % late at × {first.cost:.2f}; {left / 60:.0f} min left",
            flush=True,
        )
        write_page(path, page)
    print(f"wrote {path}")


def _server() -> dict[str, Any]:
    server, service = SCENE.server, SCENE.server.service
    return {
        "service": {name: getattr(service, name) for name in ("fixed", "per_row", "scatter")},
        **{name: getattr(server, name) for name in ("largest", "limit", "cold_start")},
    }


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seeds", type=_numbers, default=_numbers("1-5"), help="seeds, for example 101-120"
    )
    parser.add_argument("--loads", nargs="*", choices=[*LOADS, AZURE], default=None)
    parser.add_argument("--mean", type=float, default=SCENE.mean, help="mean calls per second")
    parser.add_argument("--only", nargs="*", default=(), help="scalers")
    parser.add_argument("--trace", type=Path, default=None, help="CSV file of azure-conv")
    parser.add_argument("--out", type=Path, default=None)
    os.nice(5)
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


if __name__ == "__main__":
    main()
