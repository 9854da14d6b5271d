"""Metrics and logs: every metric's name and meaning, and how the program talks to its operator.

Each worker counts for itself; `merge` adds the texts of all workers up when Prometheus asks. Sums
are sums of counters and histograms; gauges keep apart, by a label that names their source.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from serve.core.calls import Call, Choice

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody asks for
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_log = logging.getLogger("servegate.telemetry")
_CALL = ("model", "version", "route", "protocol")


class Meters:
    """The numbers of one worker. Labels: model, version, route (why that version), protocol."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "servegate_calls",
            "Calls that got an answer from Triton, by the answer's status code",
            (*_CALL, "verb", "code"),
            registry=self.registry,
        )
        self._errors = Counter(
            "servegate_errors",
            "Calls that failed: Triton's status code, or the gateway's own error code",
            (*_CALL, "error"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "servegate_call_seconds",
            "Time from a complete request to a complete answer, Triton's share included",
            _CALL,
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._retries = Counter(
            "servegate_retries",
            "Attempts that were provably not executed, so that another replica was tried",
            ("model", "reason"),
            registry=self.registry,
        )

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
        labels = _labels(call, choice)
        self._calls.labels(*labels, call.verb.value, code).inc()
        if not good:
            self._errors.labels(*labels, code).inc()
        if call.verb == "infer":
            self._seconds.labels(*labels).observe(seconds)

    def call_failed(self, call: Call, choice: Choice | None, error: str, seconds: float) -> None:
        """The gateway answered this call with an error of its own."""
        labels = _labels(call, choice)
        self._errors.labels(*labels, error).inc()
        if choice is not None and call.verb == "infer":
            self._seconds.labels(*labels).observe(seconds)

    def retried(self, call: Call, reason: str) -> None:
        """One attempt of this call was refused or could not be sent."""
        self._retries.labels(call.model, reason).inc()

    def text(self) -> bytes:
        """All numbers in Prometheus' text format."""
        return generate_latest(self.registry)


class _Table(Collector):
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


def _labels(call: Call, choice: Choice | None) -> tuple[str, str, str, str]:
    """A name that no snapshot knows is no label value: callers could invent any number of them."""
    if choice is None:
        return "", "", "", call.protocol
    return call.model, str(choice.target.version), choice.by, call.protocol


def merge(texts: Mapping[str, str]) -> bytes:
    """One Prometheus text out of several, keyed by the name of their source."""
    merged: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for source, text in texts.items():
        for family in _families(source, text):
            known = merged.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            added = sums.setdefault(known.name, {})
            for sample in family.samples:
                labels = dict(sample.labels)
                if family.type == "gauge":
                    labels = {"source": source, **labels}
                key = (sample.name, tuple(labels.items()))
                added[key] = added.get(key, 0.0) + sample.value
    for name, metric in merged.items():
        for (sample_name, labels_), value in sums[name].items():
            metric.add_sample(sample_name, dict(labels_), value)
    registry = CollectorRegistry()
    registry.register(_Table(merged.values))
    return generate_latest(registry)


def _families(source: str, text: str) -> list[Metric]:
    """The metrics of one source; none when it says something else."""
    try:
        return list(text_string_to_metric_families(text))
    except ValueError as error:
        _log.warning("the metrics of %s cannot be read: %s", source, error)
        return []


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
