"""Situations, put together from a few numbers."""

from collections.abc import Mapping
from typing import Any

from serve.capacity.setup import BatchSetup
from serve.control.batching.latencies import NONE, Took
from serve.control.batching.situation import Batched, Situation
from serve.control.batching.windows import CountWindow
from serve.core.objectives import Objective
from serve.triton.model_counters import Counters, Executed

Sizes = Mapping[int, tuple[int, float]]  # rows: executions, and milliseconds of each


def counted(
    sizes: Sizes,
    *,
    calls: int | None = None,
    queue: float = 0.0,
    failures: int = 0,
    hits: int = 0,
    misses: int = 0,
) -> Counters:
    """Executions, and the calls that they were of: one per row, unless said; `queue` in ms."""
    rows = sum(size * count for size, (count, _) in sizes.items())
    executions = sum(count for count, _ in sizes.values())
    came = rows if calls is None else calls
    spent = sum(size * count * took for size, (count, took) in sizes.items())
    compute = int(spent * 1e6 * came / rows) if rows else 0
    waited = int(queue * 1e6 * (came + hits))
    return Counters(
        calls=came + hits,
        failures=failures,
        rows=rows,
        executions=executions,
        whole=compute + waited,
        queue=waited,
        compute=compute,
        hits=hits,
        misses=misses,
        sizes={
            size: Executed(count, int(count * took * 1e6)) for size, (count, took) in sizes.items()
        },
    )


def situation(
    sizes: Sizes,
    *,
    setup: BatchSetup | None = None,
    replicas: Mapping[str, float] | None = None,
    objective: str = "",
    cpu: float | None = None,
    gpu: float | None = None,
    took: Took = NONE,
    tuned: Mapping[str, Any] | None = None,
    batched: Mapping[str, Any] | None = None,
    **calls: Any,
) -> Situation:
    """One version, looked at for 100 s on one replica unless said."""
    window = CountWindow(
        counted(sizes, **calls),
        {"a": 100.0} if replicas is None else replicas,
        cpu=cpu,
        gpu=gpu,
    )
    return Situation(
        "m@1",
        Batched(setup or BatchSetup(8), **(batched or {})),
        window,
        Objective.parse(objective) if objective else None,
        took,
        tuned or {},
    )
