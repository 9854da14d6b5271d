"""A situation: how a version is batched, and what came of it. What the rules look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.capacity.service import ExecutionPoint, ServiceTime, fitted
from serve.capacity.setup import BatchSetup
from serve.control.batching.latencies import NONE, Took
from serve.control.batching.windows import CountWindow
from serve.core.objectives import Objective
from serve.triton.config import Configuration

ENOUGH = 100  # calls in the window, below which nothing is said
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_AFFORDABLE = 4  # times the largest batch that was seen: beyond that the line says nothing


@dataclass(frozen=True, slots=True)
class Batched:
    """What a configuration says about batches.

    `queue_limit` is how many calls may wait, 0 without a limit. An ensemble batches nothing itself;
    calls of sequences are put together by other rules.
    """

    setup: BatchSetup
    sequences: bool = False
    ensemble: bool = False
    caches: bool = False
    queue_limit: int = 0


NO_BATCHES = Batched(BatchSetup(0, batches=False))


@dataclass(frozen=True, slots=True)
class Situation:
    """One version. `asked` is what people call it (`digits@3`); `took` is as callers see it."""

    asked: str
    batched: Batched
    window: CountWindow
    objective: Objective | None = None
    took: Took = NONE
    tuned: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def is_enough(self) -> bool:
        """Whether so many calls were seen that something can be said."""
        return self.window.counted.calls + self.took.refused >= ENOUGH

    @property
    def setup(self) -> BatchSetup:
        """How it is batched."""
        return self.batched.setup

    @property
    def service(self) -> ServiceTime | None:
        """The line through the executions that were seen; None while there are too few sizes."""
        return fitted(points(self.window))

    @property
    def busy(self) -> float:
        """The share of their time in which the instances compute, from 0 to 1."""
        return self.window.busy(self.setup.instances)

    @property
    def overhead(self) -> float:
        """Seconds that a call takes outside of Triton, on average."""
        return max(self.took.mean - self.window.whole, 0.0) if self.took.calls else 0.0

    @property
    def queues(self) -> float:
        """Seconds that a call waits for each second that it is computed."""
        return self.window.queue / self.window.compute if self.window.compute else 0.0

    def worst(self, rows: float) -> float | None:
        """Seconds of a call that comes just after a batch of so many rows has begun: it waits for
        that batch, then for its own, and for what is outside of Triton. None without a line."""
        service = self.service
        return None if service is None else 2 * service.time(rows) + self.overhead

    @property
    def allowed(self) -> int | None:
        """The largest batch with which the worst call meets the objective; 0 if there is none.

        None where there is no objective or no line. At most four times what was seen: further the
        line is a guess.
        """
        service = self.service
        if service is None or self.objective is None:
            return None
        room = (self.objective.limit - self.overhead) / 2 - service.fixed
        return max(0, min(int(room / service.per_row), _AFFORDABLE * self.window.largest))


def points(window: CountWindow) -> tuple[ExecutionPoint, ...]:
    """The mean time of an execution of each size that was seen."""
    return tuple(
        ExecutionPoint(size, one.ns / one.count / 1e9, one.count)
        for size, one in window.counted.sizes.items()
        if one.count
    )


def batched_of(configuration: Configuration, *, gpus: int = 1) -> Batched:
    """What a configuration says; `gpus` are those that an instance group means that names none."""
    message = configuration.message
    batching = message.dynamic_batching
    preferred = tuple(sorted(batching.preferred_batch_size))
    setup = BatchSetup(
        max_batch_size=message.max_batch_size,
        instances=_instances(message, gpus),
        batches=message.HasField("dynamic_batching") and message.max_batch_size > 0,
        delay=batching.max_queue_delay_microseconds / 1e6,
        # Triton 2.51 names the largest size where a configuration names none.
        preferred=() if preferred == (message.max_batch_size,) else preferred,
    )
    return Batched(
        setup,
        sequences=configuration.batches_sequences,
        ensemble=message.HasField("ensemble_scheduling"),
        caches=message.response_cache.enable,
        queue_limit=_limit(batching),
    )


def _instances(message: Any, gpus: int) -> int:
    """On one replica; a group of GPUs has its count on each of them. Passive ones run nothing."""
    total = 0
    for group in message.instance_group:
        if not group.passive:
            each = max(group.count, 1)
            is_on_gpus = group.kind == group.KIND_GPU
            total += each * (len(group.gpus) or gpus) if is_on_gpus else each
    return max(total, 1)


def _limit(batching: Any) -> int:
    """The largest queue of all levels; 0 as soon as one has no limit."""
    policies = list(batching.priority_queue_policy.values())
    if not policies or len(policies) < batching.priority_levels:
        policies.append(batching.default_queue_policy)
    limits = [policy.max_queue_size for policy in policies]
    return 0 if 0 in limits else int(max(limits))
