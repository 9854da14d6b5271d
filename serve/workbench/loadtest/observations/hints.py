"""Hints while a run goes on: how many replicas pools should have, how many they had, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from serve.capacity.scaling.texts import asked
from serve.workbench.loadtest.observations.timeline import SeriesName, Timeline
from serve.workbench.loadtest.observed import ObservedHint, ObservedSeries

READY, WANTED, DEMAND = "ready", "wanted", "demand"
GROUP = "pool"
_UNIT = "replicas"
_MANY = 20  # pools from which on only those are asked for that matter


class HintWatch:
    """Of the pools that hold a model; of all of them while none is known to."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._holding: set[str] = set()
        self._count = 0
        self._timeline = Timeline()
        self._advice: list[ObservedHint] = []
        self._said: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<HintWatch {len(self._advice)} for {self._model}>"

    @property
    def series(self) -> tuple[ObservedSeries, ...]:
        """Ready and wanted replicas, and the demand in replicas."""
        return tuple(one for one in self._timeline.series if self._is_told(one.of))

    @property
    def advice(self) -> tuple[ObservedHint, ...]:
        """What was said anew, in the order of time."""
        return tuple(one for one in self._advice if self._is_told(one.pool))

    @property
    def paths(self) -> tuple[str, ...]:
        """What is to be asked next: all pools, or of very many only those that hold the model."""
        if self._count <= _MANY or not self._holding:
            return ("/api/hints",)
        return tuple(f"/api/hints/{quote(pool, safe='')}" for pool in sorted(self._holding))

    def forget(self) -> None:
        """Begin anew: what was told until now was before the run."""
        self._timeline = Timeline()
        self._advice, self._said = [], {}

    def add(self, at: float, page: Mapping[str, Any]) -> None:
        """What is answered to one of `paths`, at a second of the run."""
        pools = page.get("hints", [page])
        self._count = max(self._count, len(pools))
        for one in pools:
            pool = str(one["pool"])
            if any(model["name"] == self._model for model in one["models"]):
                self._holding.add(pool)
            for name, value in (
                (READY, one["ready"]),
                (WANTED, one["desired"]),
                (DEMAND, one["demand"]),
            ):
                number = None if value is None else float(value)
                self._timeline.add(SeriesName(GROUP, pool, name, _UNIT), at, number)
            self._note(at, pool, one)

    def _note(self, at: float, pool: str, one: Mapping[str, Any]) -> None:
        """Only what differs in more than the numbers of its reasons."""
        said = (one["desired"], one["confidence"], [reason["code"] for reason in one["reasons"]])
        if self._said.get(pool) == said:
            return
        self._said[pool] = said
        self._advice.append(
            ObservedHint(
                at=round(at, 3),
                pool=pool,
                desired=int(one["desired"]),
                what=asked(one["desired"], one["ready"], one["starting"]),
                is_held=one["confidence"] != "high",
                reasons=tuple((str(each["code"]), str(each["text"])) for each in one["reasons"]),
            )
        )

    def _is_told(self, pool: str) -> bool:
        return not self._holding or pool in self._holding
