"""What is told of a pool: the hint, all that it was made of, and when; and its JSON form.

Every way out (the admin API, the CLI, KEDA, Prometheus, the pages) tells these same numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from serve.capacity.scaling.signals import Bounds, PoolSignal, ReplicaHint

_NONE: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PoolNumbers:
    """One pool. `at` is in seconds of the epoch; `schedule` names the entry whose bounds hold.

    `gpus`: by `replica/uuid`, what is known of a GPU, each with its `source`.
    """

    hint: ReplicaHint
    signal: PoolSignal
    bounds: Bounds
    at: float
    schedule: str = ""
    gpus: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _NONE)

    @property
    def pool(self) -> str:
        """Its name."""
        return self.hint.pool

    def to_json(self) -> dict[str, Any]:
        """As `GET /api/hints/{pool}` answers; what is not known is null."""
        hint, signal = self.hint, self.signal
        needs = dict(hint.needs)
        return {
            "pool": hint.pool,
            "desired": hint.desired,
            "ready": hint.ready,
            "starting": hint.starting,
            "demand": _known(hint.demand),
            "confidence": hint.confidence,
            "lasts": hint.lasts,
            "at": self.at,
            "reasons": [{"code": one.code.value, "text": one.text} for one in hint.reasons],
            "bounds": {**asdict(self.bounds), "schedule": self.schedule},
            "cold_start": _known(signal.cold_start),
            "idle": _known(signal.idle),
            "utilization": _known(signal.utilization),
            "faults": list(signal.faults),
            "gpus": {name: dict(one) for name, one in self.gpus.items()},
            "models": [
                {
                    **{name: _known(value) for name, value in asdict(one).items()},
                    "demand": _known(needs.get(one.name)),
                }
                for one in signal.models
            ],
        }


def _known(value: Any) -> Any:
    """JSON knows no number that is not finite."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
