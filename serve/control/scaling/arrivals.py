"""Arrivals: what came at the gateway for each model, reading by reading of its metrics.

    arrivals = calls that ended + messages of streams + mirrored calls + rise of the calls in flight

So calls count when they come, not when they end, and those that were refused, have failed or still
wait count as well. Rates are of whole steps between two readings, so they hold whatever the period.

| a reading            | what is made of it                                                       |
|----------------------|--------------------------------------------------------------------------|
| a counter fell       | a fault: the gateway was started anew, and counts from 0 from here on     |
| nan, or below 0      | a fault; the next reading has nothing to be compared with                |
| no calls in flight   | those of the reading before: a gateway of many is silent                 |
| does not come        | nothing: what is known grows old                                         |
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serve.control.live import gateway_metrics
from serve.control.live.rises import add_buckets, bucket_rises
from serve.wire.prometheus import samples

LASTING = 60.0  # seconds over which calls are held against an objective
RECENT, LATELY = 5.0, 15.0  # seconds
_SLACK = 2.5  # seconds that a window may lack: steps do not begin when windows do
_IN_FLIGHT, _SECONDS = "servegate_model_calls_in_flight", "servegate_call_seconds_sum"
# Answers that tell of too few replicas: the gateway's own, and Triton's over HTTP and gRPC.
_REFUSED = frozenset({"overloaded", "no_replica", "no_room", "503", "UNAVAILABLE"})
_NO_BUCKETS: Mapping[float, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Of one model: calls that ended, of them refused; seconds of all, and calls up to each bound.

    Either since the gateway's start or in one step. `came` is known only of a step; it includes the
    `mirrored` copies of calls, whose responses no caller gets.
    """

    ended: float = 0.0
    refused: float = 0.0
    in_flight: float = 0.0
    seconds: float = 0.0
    buckets: Mapping[float, float] = field(default_factory=lambda: _NO_BUCKETS)
    came: float = 0.0
    mirrored: float = 0.0


@dataclass(frozen=True, slots=True)
class Came:
    """One model, as it is told. `recent`, `lately`: calls per second; `in_flight`: now.

    `seconds` is the mean time of the last minute's calls, None without any.
    """

    recent: float
    lately: float
    in_flight: float
    seconds: float | None
    minute: CallCounts

    def missed(self, limit: float | None) -> float | None:
        """The share of the last minute's calls that were refused, or took longer; None without any.

        Without a limit none is too long.
        """
        if not self.minute.ended:
            return None
        late = 0.0 if limit is None else beyond(limit, self.minute.buckets)
        return min(1.0, (late + self.minute.refused) / self.minute.ended)


@dataclass(frozen=True, slots=True)
class _Step:
    at: float
    seconds: float
    models: Mapping[str, CallCounts]


NOTHING = CallCounts()


class ModelArrivals:
    """The last minute. `at` is when the gateway was read last, by the clock of `tell`.

    `fault` says what is wrong with the newest reading; empty when nothing is.
    """

    def __init__(self) -> None:
        self.at: float | None = None
        self.fault = ""
        self._now: Mapping[str, CallCounts] | None = None
        self._steps: deque[_Step] = deque()
        self._called: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<ModelArrivals steps={len(self._steps)} models={len(self._called)}>"

    @property
    def called(self) -> Mapping[str, float]:
        """When each model was last called that ever was, by the clock of `tell`."""
        return self._called

    def tell(self, text: str, at: float) -> None:
        """The gateway's metrics at a time; `ValueError` or `KeyError` for what is none."""
        now = _read(text, self._now or {})
        before, seconds = self._now, at - (at if self.at is None else self.at)
        self.at, self._now, self.fault = at, now, ""
        wrong = [name for name, one in now.items() if not _is_right(one)]
        if wrong:
            self._now, self.fault = (
                None,
                f"the gateway's metrics contain invalid numbers for {wrong[0] or 'calls'}",
            )
        elif before is not None and _has_fallen(before, now):
            self.fault = "the gateway's counters decreased, because it was restarted"
        if self.fault:
            self._steps.clear()
        elif before is not None and seconds > 0:
            self._add(_Step(at, seconds, dict(_risen(before, now))))

    def of(self, model: str) -> Came:
        """One model; zeros where it was never called."""
        minute = _sum([step.models[model] for step in self._steps if model in step.models])
        answered = max(minute.buckets.values(), default=0.0)
        return Came(
            self._rate(model, RECENT),
            self._rate(model, LATELY),
            self.in_flight(model),
            minute.seconds / answered if answered else None,
            minute,
        )

    def in_flight(self, model: str) -> float:
        """Its calls that have come and have not ended, when the gateway was read last."""
        return (self._now or {}).get(model, NOTHING).in_flight

    def _add(self, step: _Step) -> None:
        self._steps.append(step)
        while self._steps[0].at <= step.at - LASTING:
            self._steps.popleft()
        for model, one in step.models.items():
            if one.came or one.in_flight:
                self._called[model] = step.at

    def _rate(self, model: str, seconds: float) -> float:
        came = covered = 0.0
        for step in reversed(self._steps):
            if covered >= seconds - _SLACK:
                break
            came += step.models.get(model, NOTHING).came
            covered += step.seconds
        return came / covered if covered else 0.0


def beyond(limit: float, buckets: Mapping[float, float]) -> float:
    """How many calls took longer; within a bucket they are taken to lie evenly."""
    total = max(buckets.values(), default=0.0)
    low, below = 0.0, 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if bound >= limit:
            if bound == math.inf:
                return total - below
            return total - below - (count - below) * (limit - low) / (bound - low)
        low, below = bound, count
    return total - below


def _read(text: str, before: Mapping[str, CallCounts]) -> dict[str, CallCounts]:
    """By model; calls for models that nobody knows are under the empty name, and left out."""
    reading = gateway_metrics.read(text)
    ended: dict[str, float] = {}
    mirrored: dict[str, float] = {}
    for counts, found in (
        (reading.calls, ended),
        (reading.messages, ended),
        (reading.mirrored, mirrored),
    ):
        for (model, _, _), count in counts.items():
            found[model] = found.get(model, 0.0) + count
    refused: dict[str, float] = {}
    for ((model, _, _), code), count in reading.errors.items():
        if code in _REFUSED:
            refused[model] = refused.get(model, 0.0) + count
    others: dict[str, dict[str, float]] = {_IN_FLIGHT: {}, _SECONDS: {}}
    for name, labels, value in samples(text, (_IN_FLIGHT, _SECONDS)):
        of_one = others[name]
        of_one[labels["model"]] = of_one.get(labels["model"], 0.0) + value
    if not others[_IN_FLIGHT]:
        others[_IN_FLIGHT] = {name: one.in_flight for name, one in before.items()}
    names = {*ended, *mirrored, *refused, *others[_IN_FLIGHT], *reading.buckets} - {""}
    return {
        name: CallCounts(
            ended.get(name, 0.0),
            refused.get(name, 0.0),
            others[_IN_FLIGHT].get(name, 0.0),
            others[_SECONDS].get(name, 0.0),
            reading.buckets.get(name, _NO_BUCKETS),
            mirrored=mirrored.get(name, 0.0),
        )
        for name in sorted(names)
    }


def _is_right(one: CallCounts) -> bool:
    counts = (one.ended, one.mirrored, one.refused, one.in_flight)
    numbers = (*counts, one.seconds, *one.buckets.values())
    return all(math.isfinite(number) and number >= 0 for number in numbers)


def _has_fallen(before: Mapping[str, CallCounts], now: Mapping[str, CallCounts]) -> bool:
    return any(now.get(name, NOTHING).ended < one.ended for name, one in before.items())


def _risen(
    before: Mapping[str, CallCounts], now: Mapping[str, CallCounts]
) -> Iterator[tuple[str, CallCounts]]:
    """Of each model that was called; a worker that ends takes its calls in flight along."""
    for name, one in now.items():
        was = before.get(name, NOTHING)
        ended, mirrored = one.ended - was.ended, max(0.0, one.mirrored - was.mirrored)
        came = max(0.0, ended + one.in_flight - was.in_flight) + mirrored
        if came or ended or one.in_flight:
            yield (
                name,
                CallCounts(
                    ended,
                    max(0.0, one.refused - was.refused),
                    one.in_flight,
                    max(0.0, one.seconds - was.seconds),
                    bucket_rises(was.buckets, one.buckets),
                    came,
                    mirrored,
                ),
            )


def _sum(parts: list[CallCounts]) -> CallCounts:
    return CallCounts(
        sum(one.ended for one in parts),
        sum(one.refused for one in parts),
        parts[-1].in_flight if parts else 0.0,
        sum(one.seconds for one in parts),
        add_buckets([one.buckets for one in parts]),
        sum(one.came for one in parts),
        sum(one.mirrored for one in parts),
    )
