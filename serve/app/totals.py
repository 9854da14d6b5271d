"""Totals over processes that come and go: sums that never fall, for `rate()`.

Prometheus takes a counter that falls for one that began again at zero, and counts its whole value
as new. A plain sum over workers falls whenever one of them restarts, or does not answer in time,
while the others still have all of theirs: the graph would show a burst of calls that never were.
So the sum of a counter or histogram is

    what lives that are over had counted, when last seen
    + what each source has counted in its present life, when last seen

A life is told by whoever reads: for a worker its process id and start time. What a worker counted
between the last look and its death is lost. A gauge is a fact of now: it is kept apart by the label
`source`, and left out while its source does not answer.
"""

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

_log = logging.getLogger("servegate.metrics")

Series = tuple[str, tuple[tuple[str, str], ...]]  # the sample's name and its labels
Numbers = dict[str, dict[Series, float]]  # by the family's name


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source said, in Prometheus' text format, and in which of its lives."""

    text: str
    life: Hashable = None


class Totals:
    """The sums over all sources, from the first reading on."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, str]] = {}  # name → documentation, type
        self._over: Numbers = {}
        self._present: dict[str, tuple[Hashable, Numbers]] = {}

    def __repr__(self) -> str:
        return f"<Totals of {sorted(self._present)}>"

    def add(self, readings: Mapping[str, Reading]) -> tuple[Metric, ...]:
        """Take in what those sources say that answered, by name; answers all numbers as of now."""
        gauges: Numbers = {}
        for source, reading in readings.items():
            if (families := _parse(source, reading.text)) is None:
                continue
            counts: Numbers = {}
            for family in families:
                self._families.setdefault(family.name, (family.documentation, family.type))
                is_gauge = self._families[family.name][1] == "gauge"
                kept = (gauges if is_gauge else counts).setdefault(family.name, {})
                for sample in family.samples:
                    apart = {"source": source} if is_gauge else {}
                    series = (sample.name, tuple((apart | sample.labels).items()))
                    kept[series] = kept.get(series, 0.0) + sample.value
            self._live_on(source, reading.life, counts)
        return tuple(self._metrics((self._over, *self._counts(), gauges)))

    def _live_on(self, source: str, life: Hashable, counts: Numbers) -> None:
        before = self._present.get(source)
        if before is not None and before[0] != life:
            _add(self._over, before[1])
        self._present[source] = (life, counts)

    def _counts(self) -> Iterable[Numbers]:
        return (counts for _, counts in self._present.values())

    def _metrics(self, parts: Iterable[Numbers]) -> Iterable[Metric]:
        sums: Numbers = {}
        for part in parts:
            _add(sums, part)
        for name, (documentation, kind) in self._families.items():
            metric = Metric(name, documentation, kind)
            for (sample, labels), value in sums.get(name, {}).items():
                metric.add_sample(sample, dict(labels), value)
            yield metric


def _add(sums: Numbers, more: Numbers) -> None:
    for name, numbers in more.items():
        kept = sums.setdefault(name, {})
        for series, value in numbers.items():
            kept[series] = kept.get(series, 0.0) + value


def _parse(source: str, text: str) -> list[Metric] | None:
    """The metrics of one source; None when it says something else."""
    try:
        return list(text_string_to_metric_families(text))
    except ValueError as error:
        _log.warning("the metrics of %s cannot be read: %s", source, error)
        return None
