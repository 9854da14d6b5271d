"""Hints: that calls have left what a configuration was tuned for, noticed while they come.

A hint begins when its rule has spoken twice in a row and ends when it has been silent four times,
so that one odd round makes no noise. It is logged when it begins and when it ends, and is a number
for Prometheus meanwhile. It never changes anything.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from prometheus_client.core import GaugeMetricFamily, Metric

from serve.control.batching import drift_rules
from serve.control.batching.advice import AdviceRule
from serve.control.batching.situation import Situation

BEGINS, ENDS = 2, 4  # rounds
_log = logging.getLogger("servegate.batching")

HINTS: tuple[AdviceRule, ...] = (
    AdviceRule("rate-above", drift_rules.rate_above),
    AdviceRule("rows-differ", drift_rules.rows_differ),
    AdviceRule("service-drifted", drift_rules.service_drifted),
    AdviceRule("objective-missed", drift_rules.objective_missed),
)


@dataclass(frozen=True, slots=True)
class BatchingHint:
    """One hint about one version, since when (seconds of the epoch)."""

    model: str
    version: int
    hint: str
    why: str
    fix: str
    since: float

    def __str__(self) -> str:
        return f"{self.model}@{self.version}: {self.why}. Try: {self.fix} [{self.hint}]"


@dataclass(slots=True)
class _State:
    """`spoke` and `silent` are rounds in a row."""

    hint: BatchingHint
    spoke: int = 0
    silent: int = 0
    is_on: bool = False


def judged(situation: Situation) -> Iterator[tuple[str, str, str]]:
    """What the rules say of one version now: the hint, why, and what to try."""
    if situation.is_enough:
        for rule in HINTS:
            for found in rule.check(situation):
                yield rule.name, found.why, found.fix


class BatchingHints:
    """Those that hold now. `wall`: seconds of the epoch."""

    def __init__(self, *, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._states: dict[tuple[str, int, str], _State] = {}

    def __repr__(self) -> str:
        return f"<BatchingHints {len(self.all())}>"

    def all(self) -> tuple[BatchingHint, ...]:
        """Every hint that holds, by model and version."""
        return tuple(one.hint for _, one in sorted(self._states.items()) if one.is_on)

    def of(self, model: str, version: int) -> tuple[BatchingHint, ...]:
        """Those of one version."""
        return tuple(one for one in self.all() if (one.model, one.version) == (model, version))

    def judge(self, situations: Mapping[tuple[str, int], Situation]) -> None:
        """One round over the versions that may have hints; others lose theirs."""
        spoken = {
            (model, version, name): (why, fix)
            for (model, version), situation in situations.items()
            for name, why, fix in judged(situation)
        }
        for key, (why, fix) in spoken.items():
            self._spoke(key, why, fix)
        for key in [key for key in self._states if key not in spoken]:
            self._was_silent(key)

    def collect(self) -> Iterable[Metric]:
        """For Prometheus: 1 for each hint that holds."""
        gauge = GaugeMetricFamily(
            "servegate_batching_hint",
            "1 while a version's traffic differs from the traffic that its batching configuration "
            "was tuned for",
            labels=["model", "version", "hint"],
        )
        for one in self.all():
            gauge.add_metric([one.model, str(one.version), one.hint], 1.0)
        return [gauge]

    def _spoke(self, key: tuple[str, int, str], why: str, fix: str) -> None:
        model, version, name = key
        fresh = BatchingHint(model, version, name, why, fix, self._wall())
        state = self._states.setdefault(key, _State(fresh))
        state.spoke, state.silent = state.spoke + 1, 0
        state.hint = replace(fresh, since=state.hint.since)
        if not state.is_on and state.spoke >= BEGINS:
            state.is_on = True
            _log.warning("hint begins: %s", state.hint)

    def _was_silent(self, key: tuple[str, int, str]) -> None:
        state = self._states[key]
        state.spoke, state.silent = 0, state.silent + 1
        if not state.is_on or state.silent >= ENDS:
            del self._states[key]
            if state.is_on:
                _log.info("hint ends: %s@%d, %s", *key)
