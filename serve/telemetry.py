"""Metrics and logs: every metric's name and meaning, and how the program talks to its operator.

Each worker counts for itself, in plain numbers; `wire/totals.py` adds the texts of all workers up
when Prometheus asks.
"""

import itertools
import json
import logging
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from serve.core.calls import Call, Choice, Verb

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody asks for
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_log = logging.getLogger("servegate.telemetry")
_CALL = ("model", "version", "route", "protocol")
_MIRROR = ("model", "version")


class Meters:
    """The numbers of one worker. Labels: model, version, route (why that version), protocol.

    They are plain numbers: a call costs a look-up and a few additions. prometheus_client sees them
    when somebody asks.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.table(self._collect)
        self._answers: dict[tuple[tuple[str, ...], str, str], _Answers] = {}  # of predict calls
        self._seconds: dict[tuple[str, ...], _Answers] = {}  # of predict calls that failed
        self._calls: dict[tuple[str, ...], int] = {}  # the others
        self._errors: dict[tuple[str, ...], int] = {}
        self._retries: dict[tuple[str, ...], int] = {}
        self._ejections: dict[tuple[str, ...], int] = {}
        self._messages: dict[tuple[str, ...], int] = {}
        self._mirrored: dict[tuple[str, ...], int] = {}
        self._mirrored_seconds: dict[tuple[str, ...], _Answers] = {}
        self._dropped: dict[tuple[str, ...], int] = {}
        self._comparisons: dict[tuple[str, ...], int] = {}
        self._compared_rows: dict[tuple[str, ...], int] = {}

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Register a number that is read when Prometheus asks."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def table(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Register a family of numbers whose labels are only known when Prometheus asks."""
        self.registry.register(_Table(read))

    def call_answered(
        self, call: Call, choice: Choice | None, code: str, seconds: float, *, good: bool
    ) -> None:
        """Triton gave this call an answer, good or not."""
        if call.verb is not Verb.INFER or choice is None:
            labels = _labels(call, choice)
            _add(self._calls, (*labels, str(call.verb), code))
            if not good:
                _add(self._errors, (*labels, code))
            return
        key = (choice.labels, call.protocol, code)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = _Answers(good=good)
        answers.add(seconds)

    def call_failed(self, call: Call, choice: Choice | None, error: str, seconds: float) -> None:
        """The gateway answered this call with an error of its own."""
        labels = _labels(call, choice)
        _add(self._errors, (*labels, error))
        if choice is not None and call.verb is Verb.INFER:
            self._seconds.setdefault(labels, _Answers(good=False)).add(seconds)

    def passed_on(self, call: Call, choice: Choice | None) -> None:
        """One message of a stream was routed and passed on."""
        _add(self._messages, _labels(call, choice))

    def retried(self, call: Call, reason: str) -> None:
        """One attempt of this call was refused or could not be sent."""
        _add(self._retries, (call.model, reason))

    def ejected(self, replica: str, choice: Choice) -> None:
        """This worker has ejected the replica after failures of this version."""
        _add(self._ejections, (replica, *choice.labels[:2]))

    def mirrored(self, place: tuple[str, str, str], code: str, seconds: float) -> None:
        """The copy of a call has ended; `place` is model, candidate and protocol."""
        _add(self._mirrored, (*place, code))
        self._mirrored_seconds.setdefault(place, _Answers(good=True)).add(seconds)

    def compared(self, place: tuple[str, str], outcome: str) -> None:
        """The response to a copy was compared, or why not; `place` is model and candidate."""
        _add(self._comparisons, (*place, outcome))

    def compared_rows(self, place: tuple[str, str, str], agreeing: int, differing: int) -> None:
        """So many rows of an output agree and differ; `place` is model, candidate and output."""
        for verdict, count in (("agrees", agreeing), ("differs", differing)):
            key = (*place, verdict)
            self._compared_rows[key] = self._compared_rows.get(key, 0) + count

    def mirror_dropped(self, place: tuple[str, str], reason: str) -> None:
        """A call that was to be mirrored was not; `place` is model and candidate."""
        _add(self._dropped, (*place, reason))

    def good_answers(self) -> dict[str, tuple[int, float]]:
        """By model, how many infer calls were answered well, and their seconds together."""
        found: dict[str, tuple[int, float]] = {}
        for (labels, _, _), answers in self._answers.items():
            if answers.good:
                count, seconds = found.get(labels[0], (0, 0.0))
                found[labels[0]] = count + answers.count, seconds + answers.total
        return found

    def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        return generate_latest(self.registry)

    def _collect(self) -> Iterable[Metric]:
        calls, errors, seconds = dict(self._calls), dict(self._errors), dict(self._seconds)
        for (labels, protocol, code), answers in self._answers.items():
            key = (*labels, protocol)
            calls[(*key, str(Verb.INFER), code)] = answers.count
            if not answers.good:
                errors[(*key, code)] = errors.get((*key, code), 0) + answers.count
            seconds[key] = answers + seconds[key] if key in seconds else answers
        for name, text, labels, counts in (
            (
                "servegate_calls",
                "Calls with a response from Triton, by status code",
                (*_CALL, "verb", "code"),
                calls,
            ),
            (
                "servegate_errors",
                "Failed calls, by Triton's status code or the gateway's error code",
                (*_CALL, "error"),
                errors,
            ),
            (
                "servegate_retries",
                "Attempts that failed and were retried on another replica, by reason",
                ("model", "reason"),
                self._retries,
            ),
            (
                "servegate_ejections",
                "Ejections of a replica for a version, after consecutive failures",
                ("replica", "model", "version"),
                self._ejections,
            ),
            (
                "servegate_stream_messages",
                "Forwarded messages of gRPC streams",
                _CALL,
                self._messages,
            ),
            (
                "servegate_mirrored_calls",
                "Mirrored calls, by the candidate's status code or the gateway's error code",
                (*_MIRROR, "protocol", "code"),
                self._mirrored,
            ),
            (
                "servegate_mirror_drops",
                "Calls that were selected for mirroring but not sent, by reason",
                (*_MIRROR, "reason"),
                self._dropped,
            ),
            (
                "servegate_mirror_comparisons",
                "Successful mirrored calls whose response was compared with the caller's, "
                "or why it was not",
                (*_MIRROR, "outcome"),
                self._comparisons,
            ),
            (
                "servegate_mirror_rows",
                "Rows of an output that agree or differ between the candidate and the "
                "version that served the caller",
                (*_MIRROR, "output", "verdict"),
                self._compared_rows,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=labels)
            for key, count in counts.items():
                family.add_metric(key, count)
            yield family
        for name, text, labels, timed in (
            (
                "servegate_call_seconds",
                "Time from the complete request head to the complete response, including Triton",
                _CALL,
                seconds,
            ),
            (
                "servegate_mirrored_call_seconds",
                "Time that mirrored calls take",
                (*_MIRROR, "protocol"),
                self._mirrored_seconds,
            ),
        ):
            times = HistogramMetricFamily(name, text, labels=labels)
            for key, answers in timed.items():
                times.add_metric(key, answers.buckets(), answers.total)
            yield times


class _Answers:
    """Answers of one kind: how many fell into each bucket of time (the last is without end)."""

    __slots__ = ("counts", "good", "total")

    def __init__(self, *, good: bool) -> None:
        self.good = good
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0  # seconds

    def __add__(self, other: "_Answers") -> "_Answers":
        both = _Answers(good=self.good)
        both.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(_BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants it: each bound with the number of answers up to it."""
        bounds = [*(_text(bound) for bound in _BUCKETS), "+Inf"]
        return list(zip(bounds, itertools.accumulate(self.counts), strict=True))


def _text(bound: float) -> str:
    """A bound as Prometheus' own libraries write it."""
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text


def _add(counts: dict[tuple[str, ...], int], key: tuple[str, ...]) -> None:
    counts[key] = counts.get(key, 0) + 1


class _Table(Collector):
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


def _labels(call: Call, choice: Choice | None) -> tuple[str, str, str, str]:
    """A name that no snapshot knows is no label value: callers could invent any number of them."""
    return ("", "", "", call.protocol) if choice is None else (*choice.labels, call.protocol)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and what `extra` brought along."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        item: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        replica = getattr(record, "replica", None)
        if replica is not None:
            item["replica"] = replica
        if record.exc_info:
            item["exception"] = self.formatException(record.exc_info)
        return json.dumps(item, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """`12:03:44 warning servegate.triton[local-0]: message`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, with the traceback below it when there is one."""
        replica = getattr(record, "replica", None)
        name = f"{record.name}[{replica}]" if replica else record.name
        line = (
            f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} "
            f"{name}: {record.getMessage()}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure_logging(*, level: str, form: str) -> None:
    """Send the program's log to stderr, as text or as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("servegate").setLevel(level.upper())
