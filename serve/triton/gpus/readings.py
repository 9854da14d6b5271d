"""What is known of a GPU, whoever tells it. What nobody tells is None, and never 0.

| source        | what it does where it cannot read a GPU                                          |
|---------------|----------------------------------------------------------------------------------|
| Triton        | leaves the GPU out, or writes 0: `PollDcgmMetrics` in core 24.10                 |
| dcgm-exporter | leaves the line out; old ones write 0 or the mark of a blank, which is about 2⁶³ |
| NVML          | says that it is not supported                                                    |

Under MIG nobody tells the utilisation of a slice, and that of the GPU means nothing.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from serve.triton.metrics import GpuReading

_OVER = 1.01  # a ratio of two counters that are not read at the same moment may exceed 1
_MOST_BYTES, _MOST_WATTS = 2.0**50, 1e5  # above is the mark of a blank
CUT = "enabled"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one slice of it: shares from 0 to 1, memory in bytes, power in watts.

    `source` is who told, with `+` between several. `utilization` is the share of time in which any
    kernel ran, `sm_active` the mean share of multiprocessors that had work, `tensor_active` of
    cycles in which the tensor pipe worked. `mig` is the profile of a slice, such as `1g.10gb`;
    `enabled` where a GPU is cut into slices; else empty.
    """

    source: str
    utilization: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    power: float | None = None
    mig: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same by name."""
        return asdict(self)


def slice_of(uuid: str, instance: object) -> str:
    """The name of a slice: its GPU's, and the number of its GPU instance."""
    return f"{uuid}/{instance}"


def share(value: float | None) -> float | None:
    """A share from 0 to 1; None for what cannot be one."""
    if value is None or not 0 <= value <= _OVER:
        return None
    return min(value, 1.0)


def size(value: float | None) -> float | None:
    """Bytes; None for what cannot be of a GPU."""
    return _within(value, _MOST_BYTES)


def watts(value: float | None) -> float | None:
    """Power; None for what cannot be of a GPU."""
    return _within(value, _MOST_WATTS)


def of_triton(told: Mapping[str, GpuReading], proven: Collection[str]) -> dict[str, Gpu]:
    """As Triton's metrics tell it. Its 0 may be an idle GPU, or one that it could not read.

    No GPU has no memory or draws no power; a utilisation of 0 is believed of those in `proven`,
    which have once told more.
    """
    return {
        uuid: Gpu(
            "triton",
            share(one.utilization if one.utilization or uuid in proven else None),
            memory_used=size(one.memory_used) if one.memory_total else None,
            memory_total=size(one.memory_total or None),
            power=watts(one.power or None),
        )
        for uuid, one in told.items()
        if uuid
    }


def merged(sources: Iterable[Mapping[str, Gpu]]) -> dict[str, Gpu]:
    """What all say together: of each number, what the first one says that knows it."""
    found: dict[str, Gpu] = {}
    for source in sources:
        for uuid, gpu in source.items():
            found[uuid] = _filled(found[uuid], gpu) if uuid in found else gpu
    return {uuid: _without_utilization(uuid, gpu, found) for uuid, gpu in found.items()}


def among(gpus: Mapping[str, Gpu], uuids: Collection[str]) -> dict[str, Gpu]:
    """Those of these GPUs, with their slices; all where nobody says which."""
    return {uuid: gpu for uuid, gpu in gpus.items() if not uuids or uuid.partition("/")[0] in uuids}


def _within(value: float | None, most: float) -> float | None:
    fits = value is not None and math.isfinite(value) and 0 <= value < most
    return value if fits else None


def _filled(first: Gpu, second: Gpu) -> Gpu:
    has = asdict(first)
    new = {
        name: value
        for name, value in asdict(second).items()
        if name != "source" and value not in (None, "") and has[name] in (None, "")
    }
    if not new:
        return first
    return replace(first, **new, source=f"{first.source}+{second.source}")


def _without_utilization(uuid: str, gpu: Gpu, gpus: Mapping[str, Gpu]) -> Gpu:
    """What MIG makes meaningless is taken away."""
    is_cut = any(one.startswith(f"{uuid}/") for one in gpus)
    if not gpu.mig and not is_cut:
        return gpu
    return replace(gpu, utilization=None, mig=gpu.mig or CUT)
