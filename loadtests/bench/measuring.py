"""Runs one row against all targets: a warm-up, then the interleaved rounds."""

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench import accounting, machine
from loadtests.bench.generators import Generator, Load
from loadtests.bench.machine import Cores
from loadtests.bench.rounds import Line, Sample, interleave, summarise
from loadtests.bench.rows import Row, generator
from loadtests.bench.targets import Target


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and relative to whom."""

    rounds: int
    seconds: float  # of one run
    reference: str
    direct: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One row with its lines. `others`: the share that strangers had of the proxy's core."""

    row: Row
    lines: tuple[Line, ...]
    others: float | None = None


class Meter:
    """Runs a generator and reads the clocks around it."""

    def __init__(self, making: Generator, row: Row, targets: Sequence[Target], core: int | None):
        self._making, self._row, self._core = making, row, core
        self._targets = {target.name: target for target in targets}
        self._wall = self._strange = 0.0  # seconds

    @property
    def others(self) -> float | None:
        """The share of the proxy's core that went to processes which are not measured."""
        known = self._core is not None and self._wall > 0
        return max(0.0, self._strange / self._wall) if known else None

    def run(self, name: str, seconds: float) -> Load:
        """Call one target, unmeasured."""
        return self._making.run(self._targets[name].url(self._row.protocol), seconds)

    def sample(self, name: str, seconds: float) -> Sample:
        """Call one target, and account for its processes."""
        pid = self._targets[name].pid
        begun, core = time.monotonic(), self._busy()
        before = None if pid is None else accounting.cpu(pid)
        load = self.run(name, seconds)
        print(".", end="", file=sys.stderr, flush=True)
        if pid is None or before is None:
            return Sample(load, None)
        used = accounting.cpu(pid) - before
        self._wall += time.monotonic() - begun
        self._strange += self._busy() - core - used.workers - used.supervisors
        return Sample(load, used)

    def _busy(self) -> float:
        return 0.0 if self._core is None else machine.busy(self._core)


def measure(
    row: Row, targets: Sequence[Target], plan: Plan, *, cores: Cores, folder: Path
) -> Measured:
    """Run the row; what is not answered well is counted in the lines."""
    called = [target for target in targets if target.url(row.protocol)]
    names = tuple(target.name for target in called)
    with contextlib.closing(generator(row, folder, cores.load)) as making:
        meter = Meter(making, row, called, cores.watched)
        for name in names:
            meter.run(name, min(1.0, plan.seconds))  # connections, caches, the generator's rates
        seconds = plan.seconds * row.stretch
        samples = interleave(names, plan.rounds, lambda name: meter.sample(name, seconds))
    print(file=sys.stderr)
    reference = plan.reference if plan.reference in names else names[0]
    lines = summarise(samples, reference=reference, direct=plan.direct)
    return Measured(row, lines, meter.others)
