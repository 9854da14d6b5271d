"""The fleet as numbers for Prometheus: who answers, and what is missing on whom."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.missing_versions import missing_versions


class FleetMeters:
    """Looks at the fleet when Prometheus asks."""

    def __init__(self, fleet: Fleet, inventory: Inventory) -> None:
        self._fleet = fleet
        self._inventory = inventory

    def __repr__(self) -> str:
        return f"<FleetMeters of {self._fleet}>"

    def collect(self) -> Iterable[Metric]:
        """All families, of every replica."""
        up = _family("up", "1 while the replica responds to the control plane")
        text = "Versions that the replica should serve but that are not ready on it"
        missing = _family("missing_versions", text)
        counts = missing_versions(self._fleet, self._inventory)
        for name, seen in self._fleet.observations.items():
            pool = seen.replica.pool
            up.add_metric([name, pool], float(seen.is_up))
            if name in counts:
                missing.add_metric([name, pool], counts[name])
        return [up, missing]


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"servegate_replica_{name}", text, labels=["replica", "pool"])
