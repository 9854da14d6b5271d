"""How long calls of a version took, as callers see it: the gateway's own histograms.

Triton knows nothing of the network and of the gateway; an objective is about both. What calls took
longer than Triton says is the gateway's and the network's share. Nor does Triton count the calls
that a full queue refuses (2.51); the gateway counts what it answered for each of them.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from serve.control.live.rises import add_buckets, bucket_rises, quantile, rise
from serve.wire.prometheus import samples

_BUCKETS = "servegate_call_seconds_bucket"
_SUM = "servegate_call_seconds_sum"
_COUNT = "servegate_call_seconds_count"
_ERRORS = "servegate_errors_total"
_NAMES = (_BUCKETS, _SUM, _COUNT, _ERRORS)
_REFUSED = frozenset({"503", "UNAVAILABLE"})  # Triton's own, over HTTP and gRPC

Which = tuple[str, str]  # a model, and a version as it is written


class Took(NamedTuple):
    """Calls up to each bound in seconds, the seconds of all, and how many there were.

    `refused` are those that Triton did not take: nearly always its queue was full, or they had
    waited there for too long.
    """

    buckets: Mapping[float, float]
    seconds: float
    calls: float
    refused: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds of a call; 0 without any."""
        return self.seconds / self.calls if self.calls else 0.0

    def quantile(self, per_cent: float) -> float | None:
        """Up to how many seconds so many per cent of the calls took; None without any."""
        return quantile(per_cent / 100, self.buckets)


NONE = Took({}, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Step:
    at: float
    risen: Mapping[Which, Took]


class Latencies:
    """The rises of the last minutes; `kept` in seconds."""

    def __init__(self, kept: float) -> None:
        self._kept = kept
        self._before: Mapping[Which, Took] | None = None
        self._steps: deque[_Step] = deque()

    def __repr__(self) -> str:
        return f"<Latencies steps={len(self._steps)}>"

    def tell(self, text: str, at: float) -> None:
        """The gateway's metrics at a time; `ValueError` or `KeyError` for what is none."""
        now = _read(text)
        if self._before is not None:
            before = self._before
            risen = {which: _since(before.get(which, NONE), took) for which, took in now.items()}
            called = {which: took for which, took in risen.items() if took.calls}
            self._steps.append(_Step(at, called))
        self._before = now
        while self._steps and self._steps[0].at <= at - self._kept:
            self._steps.popleft()

    def of(self, model: str, version: int) -> Took:
        """Of one version, over all protocols."""
        which = (model, str(version))
        return _sum(step.risen[which] for step in self._steps if which in step.risen)


def _read(text: str) -> dict[Which, Took]:
    buckets: dict[Which, dict[float, float]] = {}
    sums: dict[Which, float] = {}
    counts: dict[Which, float] = {}
    refused: dict[Which, float] = {}
    for name, labels, value in samples(text, _NAMES):
        which = (labels["model"], labels["version"])
        if name == _BUCKETS:
            of_one = buckets.setdefault(which, {})
            bound = float(labels["le"])
            of_one[bound] = of_one.get(bound, 0.0) + value
        elif name != _ERRORS or labels["error"] in _REFUSED:
            totals = {_SUM: sums, _COUNT: counts, _ERRORS: refused}[name]
            totals[which] = totals.get(which, 0.0) + value
    return {
        which: Took(one, sums.get(which, 0.0), counts.get(which, 0.0), refused.get(which, 0.0))
        for which, one in buckets.items()
    }


def _since(before: Took, now: Took) -> Took:
    if now.calls < before.calls:
        before = NONE
    return Took(
        bucket_rises(before.buckets, now.buckets),
        rise(before.seconds, now.seconds),
        now.calls - before.calls,
        rise(before.refused, now.refused),
    )


def _sum(parts: Iterable[Took]) -> Took:
    every = list(parts)
    return Took(
        add_buckets([one.buckets for one in every]),
        sum(one.seconds for one in every),
        sum(one.calls for one in every),
        sum(one.refused for one in every),
    )
