"""What a replica did between two readings of its own metrics.

Triton counts the time in the queue and in computing per request that succeeded. A request of an
ensemble is counted for the ensemble and for each of its models: so is their time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serve.triton.metrics import ModelReading, ReplicaScrape

_NOTHING = ModelReading(0, 0, 0, 0, 0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Work:
    """Requests per second, and how they went; `waiting` requests are queued now.

    `queue` and `compute` are seconds per request, `batch` is rows per execution; None without any.
    """

    requests: float
    queue: float | None
    compute: float | None
    batch: float | None
    waiting: int


def compare(
    before: ReplicaScrape, now: ReplicaScrape, seconds: float, names: Mapping[str, str]
) -> tuple[Work, Mapping[str, Work]]:
    """Of all models, and of each by its name; `names` are those of models by name in Triton."""
    by_model: dict[str, list[ModelReading]] = {}
    for key, reading in now.models.items():
        risen = _risen(before.models.get(key, _NOTHING), reading)
        by_model.setdefault(names.get(key[0], key[0]), []).append(risen)
    every = [risen for some in by_model.values() for risen in some]
    models = {model: _work(some, seconds) for model, some in sorted(by_model.items())}
    return _work(every, seconds), models


def _risen(before: ModelReading, now: ModelReading) -> ModelReading:
    """Counters that fell belong to a Triton that was started anew, or a version loaded anew."""
    if any(
        is_now < was
        for is_now, was in (
            (now.success, before.success),
            (now.inferences, before.inferences),
            (now.executions, before.executions),
            (now.queue_seconds, before.queue_seconds),
            (now.compute_seconds, before.compute_seconds),
        )
    ):
        before = _NOTHING
    return ModelReading(
        success=now.success - before.success,
        failure=max(0, now.failure - before.failure),
        inferences=now.inferences - before.inferences,
        executions=now.executions - before.executions,
        pending=now.pending,
        queue_seconds=now.queue_seconds - before.queue_seconds,
        compute_seconds=now.compute_seconds - before.compute_seconds,
    )


def _work(parts: Sequence[ModelReading], seconds: float) -> Work:
    requests = sum(part.success for part in parts)
    executions = sum(part.executions for part in parts)
    rows = sum(part.inferences for part in parts)
    return Work(
        requests=(requests + sum(part.failure for part in parts)) / seconds,
        queue=sum(part.queue_seconds for part in parts) / requests if requests else None,
        compute=sum(part.compute_seconds for part in parts) / requests if requests else None,
        batch=rows / executions if executions else None,
        waiting=sum(part.pending for part in parts),
    )
