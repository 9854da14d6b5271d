"""Hints as the board has them, and a fleet to watch that is advised."""

from typing import Any

from control.live.watched import Scene

from serve.capacity.scaling.signals import (
    Bounds,
    Code,
    ModelSignal,
    PoolSignal,
    Reason,
    ReplicaHint,
)
from serve.control.batching.hints import BatchingHint as BatchingHint
from serve.control.hint_samples import advised
from serve.control.live.sources import Sources
from serve.control.scaling.board import HintBoard
from serve.control.scaling.told import PoolNumbers

NOON = 1_700_000_000.0
DEMAND = Reason(Code.DEMAND, "2.31 replicas would be busy all the time")


def model(name: str = "digits", **more: Any) -> ModelSignal:
    """290 calls a second come, and a replica bears 131; two hold it."""
    usual: dict[str, Any] = {
        "recent": 300.0,
        "lately": 290.0,
        "waiting": 12.0,
        "capacity": 131.0,
        "holding": 2,
        "limit": 0.05,
        "missed": 0.004,
        "pressure": 0.3,
        "occupancy": 0.43,
    }
    return ModelSignal(name, **(usual | more))


def told(
    pool: str = "default",
    *,
    desired: int = 3,
    ready: int = 2,
    starting: int = 0,
    demand: float = 2.31,
    reasons: tuple[Reason, ...] = (DEMAND,),
    confidence: str = "high",
    models: tuple[ModelSignal, ...] | None = None,
    bounds: Bounds | None = None,
    **more: Any,
) -> PoolNumbers:
    """One more replica is wanted than there are. `more`: of `PoolNumbers`, and utilization."""
    seen = (model(),) if models is None else models
    needs = tuple((one.name, demand / len(seen)) for one in seen if one.capacity)
    return PoolNumbers(
        ReplicaHint(pool, desired, ready, starting, demand, reasons, confidence, needs=needs),
        PoolSignal(pool, 1000.0, ready, starting, seen, more.pop("utilization", None), 41.0),
        bounds or Bounds(),
        more.pop("at", NOON),
        **more,
    )


def tune(model_: str = "m", version: int = 1) -> BatchingHint:
    """A hint on batching."""
    fix = f"servegate batching tune {model_}@{version}"
    return BatchingHint(model_, version, "rate-above", "10 calls/s come", fix, NOON)


class Advised(Scene):
    """A scene whose samples tell what stands on a board, and what batching is advised."""

    def __init__(self) -> None:
        super().__init__()
        self.board = HintBoard()
        self.batching: tuple[BatchingHint, ...] = ()
        self.sources = Sources(
            self.gateway,
            self.fleet,
            self._readings,
            snapshot=lambda: self.snapshot,
            clock=self.clock,
            wall=self.wall,
            advice=lambda now: advised(self.board.all(), self.batching, now),
        )
