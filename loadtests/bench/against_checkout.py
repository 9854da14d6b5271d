"""CPU time per call of this checkout compared with another one, in one interleaved run.

    git worktree add ../before HEAD~20
    python -m loadtests.bench.against_checkout ../before

Both gateways run with the same packages in front of the same upstreams; a fresh checkout gets this
one's copies of the files from npm. Every row gets rounds until the 95 % interval of the ratio is
narrower than ± 3 %: 15 at least, because a few rounds can agree by chance, and 30 at most. Exit
status 1 when a row is wholly above 1.03, or when the geometric mean of the rows is above 1.02.
"""

import argparse
import contextlib
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.bench import machine, rows
from loadtests.bench.gateway import start_gateway
from loadtests.bench.measuring import Meter
from loadtests.bench.results import FOLDER
from loadtests.bench.rounds import interleave
from loadtests.bench.rows import Row, generator
from loadtests.bench.started import Programs
from loadtests.bench.targets import Target
from loadtests.bench.upstreams import start_cheap, start_tritons

NEW, OLD = "new", "old"
ROOT = Path(__file__).parents[2]
STATIC = "serve/*/web/static"  # of the web UI; its folder has moved
BATCH, FEWEST_ROUNDS, MOST_ROUNDS = 5, 15, 30
WIDTH = 0.03  # of half the interval
ROW_LIMIT, MEAN_LIMIT = 1.03, 1.02
# Student's t for a two-sided 95 % interval, by the number of rounds
T95 = {5: 2.776, 10: 2.262, 15: 2.145, 20: 2.093, 25: 2.064, 30: 2.045}


@dataclass(frozen=True, slots=True)
class Compared:
    """CPU time per call, new ÷ old: the geometric mean over the rounds and its 95 % interval."""

    row: str
    ratio: float
    low: float
    high: float
    rounds: int
    failed: dict[str, int]  # calls, by side

    @property
    def is_slower(self) -> bool:
        return self.low > ROW_LIMIT


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean, and the lower and upper end of its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = T95[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def compare(
    row: Row, targets: Sequence[Target], *, seconds: float, folder: Path, whole: bool = False
) -> Compared:
    """Measure one row; calls that failed are counted. `whole`: the CPU time of all processes."""
    cores, ratios, failed = machine.cores(), [], {NEW: 0, OLD: 0}
    with contextlib.closing(generator(row, folder, cores.load)) as making:
        meter = Meter(making, row, targets, cores.watched)
        for target in targets:
            meter.run(target.name, 1.0)
        while True:
            samples = interleave(
                (NEW, OLD), BATCH, lambda name: meter.sample(name, seconds * row.stretch)
            )
            for side, some in samples.items():
                failed[side] += sum(one.load.failed for one in some)
            for new, old in zip(samples[NEW], samples[OLD], strict=True):
                one, other = (
                    side.whole_cpu_per_call if whole else side.cpu_per_call for side in (new, old)
                )
                assert one and other
                ratios.append(one / other)
            mean, low, high = interval(ratios)
            enough = len(ratios) >= FEWEST_ROUNDS and high / mean - 1 < WIDTH
            if enough or len(ratios) >= MOST_ROUNDS:
                print(file=sys.stderr)
                return Compared(row.name, mean, low, high, len(ratios), failed)


def run(other: Path, wanted: Sequence[Row], *, seconds: float) -> list[Compared]:
    """Start everything, and measure the rows one after the other."""
    compared: list[Compared] = []
    cores = machine.cores()
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Programs(folder) as outer:
            tritons = start_tritons(outer, cores=cores, folder=folder)
            for upstream in ("cheap", "triton"):
                if not (here := [row for row in wanted if row.upstream == upstream]):
                    continue
                place = folder / upstream
                place.mkdir()
                with Programs(place) as programs:
                    upstreams = tritons
                    if upstream == "cheap":
                        upstreams = start_cheap(programs, tritons, cores=cores, folder=place)
                    targets = [
                        start_gateway(
                            programs, upstreams, cores=cores, folder=place, name=side, checkout=code
                        ).target
                        for side, code in ((NEW, None), (OLD, other))
                    ]
                    for row in here:
                        one = compare(row, targets, seconds=seconds, folder=place)
                        compared.append(one)
                        print(line(one), flush=True)
    return compared


def line(one: Compared) -> str:
    """One row of the printed table."""
    return (
        f"{one.row:22}{one.ratio:7.3f}  ({one.low:.3f} to {one.high:.3f})"
        f"  {one.rounds} rounds  failed: {one.failed[NEW]} new, {one.failed[OLD]} old"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="repeatable")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="duration of one run in seconds (default: 1)"
    )
    parser.add_argument("--quick", action="store_true", help="run fewer rows")
    chosen = parser.parse_args()
    if not (chosen.other / "serve").is_dir():
        parser.error(f"'{chosen.other}' is not a checkout, because it has no folder serve")
    wanted = rows.choose(chosen.only, quick=chosen.quick)
    theirs, ours = next(chosen.other.glob(STATIC)), next(ROOT.glob(STATIC))
    if not (theirs / "vendor").exists():
        shutil.copytree(ours / "vendor", theirs / "vendor")
    compared = run(chosen.other.resolve(), wanted, seconds=chosen.seconds)
    mean = math.exp(statistics.fmean([math.log(one.ratio) for one in compared]))
    print(f"{'geometric mean':22}{mean:7.3f}")
    path = FOLDER / f"against-checkout-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(one) for one in compared], indent=2))
    print(f"results: {path}")
    is_slower = any(one.is_slower for one in compared) or mean > MEAN_LIMIT
    return 1 if is_slower or any(any(one.failed.values()) for one in compared) else 0


if __name__ == "__main__":
    sys.exit(main())
