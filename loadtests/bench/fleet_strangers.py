"""What others had of the machine while something was measured."""

import os
import resource
import time

from loadtests.bench import machine


class Watch:
    """Sees what strangers had of the machine, once everything of ours has ended."""

    def __init__(self) -> None:
        self._cores = sorted(os.sched_getaffinity(0))
        self._begun, self._busy, self._ours = time.monotonic(), self._all(), _our_cpu()
        self.others: float | None = None  # the share of its cores; None until the end

    def end(self) -> None:
        """Nothing of ours runs any more."""
        took = (time.monotonic() - self._begun) * len(self._cores)
        strange = self._all() - self._busy - (_our_cpu() - self._ours)
        self.others = max(0.0, strange / took)

    def _all(self) -> float:
        return sum(map(machine.busy, self._cores))


def _our_cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
