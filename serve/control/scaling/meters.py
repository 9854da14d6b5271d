"""Hints as numbers for Prometheus, while they last: what is too old to be followed is not told."""

import math
from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from serve.control.scaling.board import HintBoard
from serve.control.scaling.told import PoolNumbers


class HintMeters:
    """Reads the board when Prometheus asks. `wall`: seconds of the epoch."""

    def __init__(self, board: HintBoard, *, wall: Callable[[], float]) -> None:
        self._board = board
        self._wall = wall

    def __repr__(self) -> str:
        return f"<HintMeters of {self._board}>"

    def collect(self) -> Iterable[Metric]:
        """All families, of every pool."""
        desired = _family("desired_replicas", "Desired replicas of a pool", "pool")
        ready = _family("ready_replicas", "Replicas of a pool that are ready", "pool")
        text = "Demand for a model in a pool, as a number of fully utilised replicas"
        demand = _family("pool_demand", text, "pool", "model")
        text = "Calls per second that one replica sustains while it meets the model's objective"
        capacity = _family("replica_capacity", text, "pool", "model")
        reason = _family(
            "hint_reason", "1 for each reason for a pool's current scaling hint", "pool", "code"
        )
        now = self._wall()
        for told in self._board.all():
            if now - told.at > told.hint.lasts:
                continue
            desired.add_metric([told.pool], told.hint.desired)
            ready.add_metric([told.pool], told.hint.ready)
            for code in sorted(told.hint.codes):
                reason.add_metric([told.pool, code.value], 1.0)
            _models(told, demand, capacity)
        return [desired, ready, demand, capacity, reason]


def _models(told: PoolNumbers, demand: GaugeMetricFamily, capacity: GaugeMetricFamily) -> None:
    for name, need in told.hint.needs:
        if math.isfinite(need):
            demand.add_metric([told.pool, name], need)
    for one in told.signal.models:
        if one.capacity is not None and math.isfinite(one.capacity):
            capacity.add_metric([told.pool, one.name], one.capacity)


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"servegate_{name}", text, labels=labels)
