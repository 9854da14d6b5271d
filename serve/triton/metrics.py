"""Triton's Prometheus text, read into numbers. Series that are absent are None, never 0.

Without a GPU, or under MIG, Triton leaves the GPU series out altogether; a missing reading must not
look like an idle GPU. Source: metrics of tritonserver 2.51, labels `model`, `version`, `gpu_uuid`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from serve.wire.prometheus import samples

_PENDING = "nv_inference_pending_request_count"
_PARTS = ("input", "infer", "output")
_OF_MODEL = (
    "nv_inference_request_success",
    "nv_inference_request_failure",
    "nv_inference_count",
    "nv_inference_exec_count",
    _PENDING,
    "nv_inference_queue_duration_us",
    *(f"nv_inference_compute_{part}_duration_us" for part in _PARTS),
)
_OF_GPU = (
    "nv_gpu_utilization",
    "nv_gpu_memory_used_bytes",
    "nv_gpu_memory_total_bytes",
    "nv_gpu_power_usage",
)
_OF_MACHINE = "nv_cpu_utilization"


@dataclass(frozen=True, slots=True)
class ModelReading:
    """Counters of one version since it was loaded, and its queue now. Durations in seconds."""

    success: int
    failure: int
    inferences: int
    executions: int
    pending: int
    queue_seconds: float
    compute_seconds: float


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU: utilisation from 0 to 1, memory in bytes, power in watts; None where not told."""

    utilization: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None


@dataclass(frozen=True, slots=True)
class ReplicaScrape:
    """All that one scrape of a replica said."""

    models: Mapping[tuple[str, int], ModelReading]
    gpus: Mapping[str, GpuReading]
    cpu_utilization: float | None

    @property
    def pending(self) -> int:
        """Calls that wait or begin to execute, over all models."""
        return sum(reading.pending for reading in self.models.values())


def read(text: str, *, only_queues: bool = False) -> ReplicaScrape:
    """Read the answer of Triton's metrics port; `ValueError` where it is none.

    Series that are not known here are passed over. With `only_queues` the counters of models are,
    too, so that it takes a fraction of the time: who has Triton's statistics has them from there.
    """
    of_model = (_PENDING,) if only_queues else _OF_MODEL
    models: dict[tuple[str, int], dict[str, float]] = {}
    gpus: dict[str, dict[str, float]] = {}
    cpu: float | None = None
    for name, labels, value in samples(text, (*of_model, *_OF_GPU, _OF_MACHINE)):
        if name == _OF_MACHINE:
            cpu = value
        elif name in _OF_GPU:
            gpus.setdefault(labels.get("gpu_uuid", ""), {})[name] = value
        elif labels.get("version", "").isdigit():
            row = models.setdefault((labels["model"], int(labels["version"])), {})
            row[name] = row.get(name, 0.0) + value  # a failure counter per reason adds up
    return ReplicaScrape(
        MappingProxyType({key: _model(row) for key, row in models.items()}),
        MappingProxyType({uuid: _gpu(row) for uuid, row in gpus.items()}),
        cpu,
    )


def _model(row: Mapping[str, float]) -> ModelReading:
    def count(name: str) -> int:
        return int(row.get(name, 0))

    micro = 1e-6
    compute = sum(row.get(f"nv_inference_compute_{part}_duration_us", 0.0) for part in _PARTS)
    return ModelReading(
        success=count("nv_inference_request_success"),
        failure=count("nv_inference_request_failure"),
        inferences=count("nv_inference_count"),
        executions=count("nv_inference_exec_count"),
        pending=count(_PENDING),
        queue_seconds=row.get("nv_inference_queue_duration_us", 0.0) * micro,
        compute_seconds=compute * micro,
    )


def _gpu(row: Mapping[str, float]) -> GpuReading:
    return GpuReading(
        utilization=row.get("nv_gpu_utilization"),
        memory_used=row.get("nv_gpu_memory_used_bytes"),
        memory_total=row.get("nv_gpu_memory_total_bytes"),
        power=row.get("nv_gpu_power_usage"),
    )
