"""Memory of a proxy at rest after a little traffic, and what each further worker adds."""

from dataclasses import dataclass

from loadtests.bench import accounting
from loadtests.bench.targets import Target


@dataclass(frozen=True, slots=True)
class Footprint:
    """Proportional set size in MiB of a proxy with one worker."""

    target: str
    worker: float
    above: float  # supervisors
    further: float | None = None  # for each worker more; None where it was not measured


def footprint(target: Target) -> Footprint | None:
    """Of a running proxy; None where its processes are not known."""
    if target.pid is None:
        return None
    found = accounting.tree(target.pid)
    return Footprint(
        target.name, accounting.memory(found.workers), accounting.memory(found.supervisors)
    )


def further(one: Footprint, several: Footprint, workers: int) -> float:
    """What each worker beyond the first adds to the whole tree."""
    more = several.worker + several.above - one.worker - one.above
    return more / (workers - 1)
