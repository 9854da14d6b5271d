"""Where samples come from: the gateway's metrics and each replica's own, asked at once, and hints.

Rates need two readings, so the one before is kept. A source that did not answer tells nothing in
that sample; the next rates are of the whole time since it last did.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from serve.control.fleet import Fleet
from serve.control.live import gateway_metrics, traffic, work
from serve.control.live.gateway_metrics import GatewayReading
from serve.control.live.samples import Advised, GatewaySeen, LiveSample, ReplicaSeen
from serve.control.observations import Observation
from serve.core.errors import ServegateError
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.triton.metrics import ReplicaScrape

PATIENCE = 2.0  # seconds for the gateway's metrics
_log = logging.getLogger("servegate.live")


class Metered(Protocol):
    """A gateway, as far as it is asked here."""

    async def metrics(self) -> str:
        """The Prometheus text of its metrics port; `ServegateError` when there is none."""


@dataclass(frozen=True, slots=True)
class _Gateway:
    at: float
    reading: GatewayReading


@dataclass(frozen=True, slots=True)
class _Replica:
    at: float
    reading: ReplicaScrape


class Sources:
    """Everybody who is asked. `snapshot` tells the models by their names in Triton.

    `advice` tells the hints that hold at a second of the epoch.
    """

    def __init__(
        self,
        gateway: Metered,
        fleet: Fleet,
        readings: Callable[[Replica], Awaitable[ReplicaScrape | None]],
        *,
        snapshot: Callable[[], Snapshot],
        clock: Callable[[], float],
        wall: Callable[[], float],
        missing: Callable[[], Mapping[str, int]] = dict,
        advice: Callable[[float], Advised] = lambda now: Advised(),
    ) -> None:
        self._gateway = gateway
        self._fleet = fleet
        self._readings = readings
        self._snapshot = snapshot
        self._clock = clock
        self._wall = wall
        self._missing = missing
        self._advice = advice
        self._before: _Gateway | None = None
        self._replicas: dict[str, _Replica] = {}

    def __repr__(self) -> str:
        return f"<Sources gateway and {len(self._fleet.observations)} replicas>"

    def forget(self) -> None:
        """Begin anew: no rate goes back to what was read until now."""
        self._before, self._replicas = None, {}

    async def sample(self) -> LiveSample:
        """Ask everybody now."""
        observed = sorted(self._fleet.observations.items())
        told, readings = await asyncio.gather(
            self._ask_gateway(), asyncio.gather(*(self._ask(seen) for _, seen in observed))
        )
        now, names = self._clock(), _names(self._snapshot())
        gateway, period = self._saw_gateway(told, now)
        missing = self._missing()
        replicas = {
            name: replace(self._saw(seen, reading, now, names), missing=missing.get(name))
            for (name, seen), reading in zip(observed, readings, strict=True)
        }
        at = self._wall()
        return LiveSample(at, period, gateway, replicas, self._advice(at))

    async def _ask_gateway(self) -> _Gateway | None:
        try:
            async with asyncio.timeout(PATIENCE):
                text = await self._gateway.metrics()
            return _Gateway(self._clock(), gateway_metrics.read(text))
        except (ServegateError, OSError, ValueError, KeyError) as error:
            _log.debug("cannot read the gateway's metrics: %s", error or type(error))
            return None

    async def _ask(self, seen: Observation) -> _Replica | None:
        reading = await self._readings(seen.replica) if seen.is_up else None
        return None if reading is None else _Replica(self._clock(), reading)

    def _saw_gateway(self, told: _Gateway | None, now: float) -> tuple[GatewaySeen, float | None]:
        before, last = self._before, told or self._before
        self._before = last
        age = None if last is None else now - last.at
        if told is None or before is None or told.at <= before.at:
            return GatewaySeen(told.reading if told else None, None, age), None
        period = told.at - before.at
        found = traffic.compare(before.reading, told.reading, period)
        return GatewaySeen(told.reading, found, age), period

    def _saw(
        self, seen: Observation, told: _Replica | None, now: float, names: Mapping[str, str]
    ) -> ReplicaSeen:
        name, pool = seen.replica.name, seen.replica.pool
        before = self._replicas.get(name)
        last = told or before
        age = None if last is None else now - last.at
        if told is None:
            return ReplicaSeen(seen.state, pool, age=age)
        self._replicas[name] = told
        if before is None or told.at <= before.at:
            return ReplicaSeen(seen.state, pool, reading=told.reading, age=age)
        whole, models = work.compare(before.reading, told.reading, told.at - before.at, names)
        return ReplicaSeen(
            seen.state, pool, reading=told.reading, work=whole, models=models, age=age
        )


def _names(snapshot: Snapshot) -> Mapping[str, str]:
    """The models by their names in Triton; what no model is called for keeps its name there."""
    views = snapshot.models.values()
    return {one.physical_name: one.model for view in views for one in view.targets.values()}
