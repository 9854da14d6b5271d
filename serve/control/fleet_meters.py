"""The fleet as numbers for Prometheus: who answers, and what is missing on whom."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.observations import Observation
from serve.control.registry import Loadable


class FleetMeters:
    """Looks at the fleet when Prometheus asks."""

    def __init__(self, fleet: Fleet, inventory: Inventory) -> None:
        self._fleet = fleet
        self._inventory = inventory

    def __repr__(self) -> str:
        return f"<FleetMeters of {self._fleet}>"

    def collect(self) -> Iterable[Metric]:
        """All families, of every replica."""
        up = _family("up", "1 while the replica answers the control plane")
        text = "Versions that the replica should serve, and cannot be called for"
        missing = _family("missing_versions", text)
        wanted = {pool: self._inventory.for_pool(pool) for pool in self._fleet.pools}
        for name, seen in self._fleet.observations.items():
            pool = seen.replica.pool
            up.add_metric([name, pool], float(seen.is_up))
            if self._fleet.is_present(name) and not seen.self_managed:
                missing.add_metric([name, pool], self._missing(seen, wanted[pool]))
        return [up, missing]

    def _missing(self, seen: Observation, wanted: Mapping[str, Loadable]) -> int:
        replica, can_be_called = seen.replica.name, self._fleet.can_be_called
        return sum(
            not can_be_called(replica, name, version)
            for name, one in wanted.items()
            if not one.problem and self._fleet.can_hold(replica, name)
            for version in one.wanted
        )


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"servegate_replica_{name}", text, labels=["replica", "pool"])
