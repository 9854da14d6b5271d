"""The answer of a dcgm-exporter, read into numbers.

Names and units as of its `etc/default-counters.csv` and `etc/dcp-metrics-included.csv`, lines as of
`internal/pkg/rendermetrics`: utilisation in percent, ratios from 0 to 1, memory in MiB, power in
watts. A GPU is told by its `UUID` (`uuid` in the old namespace), a slice by `GPU_I_PROFILE` and
`GPU_I_ID` besides. Where it knows pods, a GPU that several share has a line for each.
"""

import contextlib
from collections.abc import Iterator, Mapping

from serve.triton.gpus.readings import Gpu, share, size, slice_of, watts
from serve.wire.prometheus import MetricSample, samples

_UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
_SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
_TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
_USED, _FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
_RESERVED, _TOTAL = "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_TOTAL"
_POWER = "DCGM_FI_DEV_POWER_USAGE"
_NAMES = (_UTILIZATION, _SM_ACTIVE, _TENSOR_ACTIVE, _USED, _FREE, _RESERVED, _TOTAL, _POWER)
_MIB = 1 << 20


def read(text: str, *, pod: str = "") -> Mapping[str, Gpu]:
    """By UUID, a slice by that of its GPU and its number; `ValueError` where it is no such text.

    Where lines are about this pod, only these count: its node may have further GPUs.
    """
    lines = tuple(_lines(text))
    its_own = [one for one in lines if pod and one.labels.get("pod") == pod]
    rows: dict[str, dict[str, float]] = {}
    profiles: dict[str, str] = {}
    for name, labels, value in its_own or lines:
        uuid = labels.get("UUID") or labels.get("uuid", "")
        if not uuid:
            continue  # a switch, a link or a CPU
        if "GPU_I_PROFILE" in labels:
            uuid = slice_of(uuid, labels.get("GPU_I_ID", ""))
            profiles[uuid] = labels["GPU_I_PROFILE"]
        rows.setdefault(uuid, {})[name] = value
    return {uuid: _gpu(row, profiles.get(uuid, "")) for uuid, row in rows.items()}


def _lines(text: str) -> Iterator[MetricSample]:
    """Those that can be read: exporters have written words where a number belongs."""
    yield from samples(text, ())
    for line in text.split("\n"):
        if line.startswith(_NAMES):
            with contextlib.suppress(ValueError):
                yield from samples(line, _NAMES)


def _gpu(row: Mapping[str, float], profile: str) -> Gpu:
    percent = row.get(_UTILIZATION)
    used, total = _bytes(row, _USED), _bytes(row, _TOTAL)
    parts = (used, _bytes(row, _FREE))
    if total is None and None not in parts:
        total = sum(part for part in (*parts, _bytes(row, _RESERVED)) if part is not None)
    return Gpu(
        "dcgm",
        share(percent / 100) if percent is not None and not profile else None,
        sm_active=share(row.get(_SM_ACTIVE)),
        tensor_active=share(row.get(_TENSOR_ACTIVE)),
        memory_used=used,
        memory_total=total or None,
        power=watts(row.get(_POWER)),
        mig=profile,
    )


def _bytes(row: Mapping[str, float], name: str) -> float | None:
    return size(row[name] * _MIB) if name in row else None
