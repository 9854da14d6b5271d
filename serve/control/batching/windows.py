"""What a version did in the last minutes, over its replicas: what advice and hints are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serve.triton.model_counters import NOTHING, Counters

_NOBODY: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CountWindow:
    """`replicas` says for how many seconds each was looked at; `counted` is of all of them.

    `pending` calls wait now. `cpu` and `gpu` are the mean
    utilisation of the machines and of their busiest GPU, from 0 to 1; None where nobody tells.
    """

    counted: Counters = NOTHING
    replicas: Mapping[str, float] = field(default_factory=lambda: _NOBODY)
    pending: int = 0
    cpu: float | None = None
    gpu: float | None = None

    @property
    def seconds(self) -> float:
        """Of all replicas together."""
        return sum(self.replicas.values())

    @property
    def span(self) -> float:
        """How long the longest was looked at, in seconds."""
        return max(self.replicas.values(), default=0.0)

    @property
    def rate_per_replica(self) -> float:
        """Calls per second that one replica answered."""
        return self.counted.calls / self.seconds if self.seconds else 0.0

    @property
    def rate(self) -> float:
        """Calls per second of all replicas."""
        return self.rate_per_replica * len(self.replicas)

    @property
    def executed(self) -> int:
        """Calls that were executed: the cache had no answer."""
        return max(self.counted.calls - self.counted.hits, 0)

    @property
    def rows_per_call(self) -> float:
        """Rows that a call brings; 0 without calls."""
        return self.counted.rows / self.executed if self.executed else 0.0

    @property
    def rows_per_execution(self) -> float:
        """The mean executed batch; 0 without executions."""
        return self.counted.rows / self.counted.executions if self.counted.executions else 0.0

    @property
    def calls_per_execution(self) -> float:
        """How many calls share an execution; 0 without executions."""
        return self.executed / self.counted.executions if self.counted.executions else 0.0

    @property
    def queue(self) -> float:
        """Seconds that a call waits."""
        return self.counted.queue / self.counted.calls / 1e9 if self.counted.calls else 0.0

    @property
    def compute(self) -> float:
        """Seconds that a call is computed: the whole execution that it is part of."""
        return self.counted.compute / self.executed / 1e9 if self.executed else 0.0

    @property
    def whole(self) -> float:
        """Seconds that a call takes within Triton."""
        return self.counted.whole / self.counted.calls / 1e9 if self.counted.calls else 0.0

    @property
    def computing(self) -> float:
        """Seconds in which anything was executed, each instance by itself."""
        return sum(one.ns for one in self.counted.sizes.values()) / 1e9

    @property
    def largest(self) -> int:
        """Rows of the largest execution; 0 without any."""
        return max(self.counted.sizes, default=0)

    def busy(self, instances: int) -> float:
        """The share of their time in which the instances compute, from 0 to 1."""
        return self.computing / (instances * self.seconds) if instances and self.seconds else 0.0

    def share_from(self, rows: int) -> float:
        """The share of executions that have at least so many rows."""
        every = sum(one.count for one in self.counted.sizes.values())
        many = sum(one.count for size, one in self.counted.sizes.items() if size >= rows)
        return many / every if every else 0.0
