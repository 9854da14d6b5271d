"""Readings over the time of a run."""

from __future__ import annotations

from typing import NamedTuple

from serve.workbench.loadtest.observed import ObservedSeries


class SeriesName(NamedTuple):
    """What is read; see `ObservedSeries`."""

    group: str
    of: str
    name: str
    unit: str


class Timeline:
    """Readings as they come; seconds rise within each name."""

    def __init__(self) -> None:
        self._readings: dict[SeriesName, list[tuple[float, float | None]]] = {}

    def __repr__(self) -> str:
        return f"<Timeline of {len(self._readings)} readings>"

    def add(self, name: SeriesName, at: float, value: float | None) -> None:
        """One more. What has never been told is no reading: a missing one is not an idle one."""
        if value is not None or name in self._readings:
            shown = None if value is None else round(value, 6)
            self._readings.setdefault(name, []).append((round(at, 3), shown))

    @property
    def series(self) -> tuple[ObservedSeries, ...]:
        """All of them, sorted by what they are of."""
        return tuple(
            ObservedSeries(
                *name, seconds=tuple(at for at, _ in found), values=tuple(v for _, v in found)
            )
            for name, found in sorted(self._readings.items())
        )
