"""The log as lines, and the numbers of one worker as Prometheus reads them."""

import json
import logging
import math
import sys

import pytest
from builders import call, choice
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.parser import text_string_to_metric_families

from serve.core.calls import Call, Choice, Verb
from serve.telemetry import JsonFormatter, Meters, TextFormatter


def record(*, replica: str | None = None) -> logging.LogRecord:
    made = logging.LogRecord("servegate.x", logging.WARNING, "x.py", 1, "größe %s", ("ü",), None)
    if replica is not None:
        made.replica = replica
    return made


def failed() -> logging.LogRecord:
    made = record()
    try:
        raise ValueError("broken")
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_a_line_for_programs_is_one_json_object_also_with_a_traceback() -> None:
    line = JsonFormatter().format(record(replica="local-0"))
    item = json.loads(line)
    assert (item["level"], item["logger"]) == ("warning", "servegate.x")
    assert (item["message"], item["replica"]) == ("größe ü", "local-0")
    traceback = JsonFormatter().format(failed())
    assert "\n" not in line + traceback
    assert "ValueError: broken" in json.loads(traceback)["exception"]


def test_a_line_for_people_names_level_logger_and_replica_and_a_traceback_follows_it() -> None:
    line = TextFormatter().format(record(replica="local-0"))
    assert line.endswith(" warning servegate.x[local-0]: größe ü")
    assert TextFormatter().format(record()).endswith(" warning servegate.x: größe ü")
    first, *rest = TextFormatter().format(failed()).splitlines()
    assert first.endswith("größe ü")
    assert rest[-1] == "ValueError: broken"


# --- numbers -------------------------------------------------------------------------------------

BOUNDS = [
    *("0.0005", "0.001", "0.002", "0.003", "0.005", "0.0075", "0.01", "0.015", "0.02", "0.03"),
    *("0.05", "0.075", "0.1", "0.15", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0"),
    "+Inf",
]
CALL = 'model="m",protocol="http",route="number",version="1"'
NAMELESS = 'model="",protocol="http",route="",version=""'


def lines(meters: Meters) -> list[str]:
    """The samples, as they are written."""
    return [line for line in meters.text().decode().splitlines() if not line.startswith("#")]


def buckets(meters: Meters) -> dict[str, float]:
    """Each bound with the calls up to it, of meters that know one kind of call."""
    return {
        sample.labels["le"]: sample.value
        for family in text_string_to_metric_families(meters.text().decode())
        for sample in family.samples
        if sample.name.endswith("_bucket")
    }


def test_before_the_first_call_every_name_and_meaning_is_there_and_no_number() -> None:
    assert lines(Meters()) == []
    text = Meters().text().decode()
    for name in (
        *("calls_total", "errors_total", "retries_total", "ejections_total", "call_seconds"),
        *("stream_messages_total", "mirrored_calls_total", "mirror_drops_total"),
        "mirrored_call_seconds",
    ):
        assert f"# HELP servegate_{name} " in text and f"# TYPE servegate_{name} " in text, name


def test_an_answer_is_one_call_and_one_time() -> None:
    meters = Meters()
    meters.call_answered(call(), choice(), "200", 0.004, good=True)
    assert lines(meters) == [
        'servegate_calls_total{code="200",model="m",protocol="http",route="number",verb="infer",'
        'version="1"} 1.0',
        *(
            f'servegate_call_seconds_bucket{{le="{bound}",{CALL}}} {int(float(bound) >= 0.004)}.0'
            for bound in BOUNDS
        ),
        f"servegate_call_seconds_count{{{CALL}}} 1.0",
        f"servegate_call_seconds_sum{{{CALL}}} 0.004",
    ]


def test_a_failure_without_a_version_has_no_labels_of_its_own_and_no_time() -> None:
    meters = Meters()
    meters.call_failed(call(model="invented"), None, "unknown_model", 0.1)
    assert lines(meters) == [f'servegate_errors_total{{error="unknown_model",{NAMELESS}}} 1.0']


def test_only_predict_calls_are_timed() -> None:
    for verb in set(Verb) - {Verb.INFER}:
        meters = Meters()
        meters.call_answered(call(verb), choice(), "200", 0.1, good=True)
        meters.call_failed(call(verb), choice(), "outcome_unknown", 0.1)
        assert lines(meters) == [
            f'servegate_calls_total{{code="200",model="m",protocol="http",route="number",'
            f'verb="{verb}",version="1"}} 1.0',
            f'servegate_errors_total{{error="outcome_unknown",{CALL}}} 1.0',
        ]


def test_retries_and_messages_have_counters_of_their_own() -> None:
    meters = Meters()
    meters.retried(call(), "not sent")
    meters.retried(call(), "not sent")
    meters.passed_on(call(Verb.STREAM), choice())
    assert lines(meters) == [
        'servegate_retries_total{model="m",reason="not sent"} 2.0',
        f"servegate_stream_messages_total{{{CALL}}} 1.0",
    ]


def test_a_time_on_a_bound_belongs_below_it() -> None:
    for bound in BOUNDS[:-1]:
        meters = Meters()
        meters.call_answered(call(), choice(), "200", float(bound), good=True)
        meters.call_answered(call(), choice(), "200", math.nextafter(float(bound), 99), good=True)
        counts = buckets(meters)
        above = BOUNDS[BOUNDS.index(bound) + 1]
        assert (counts[bound], counts[above]) == (1, 2)


def test_a_gauge_is_read_when_prometheus_asks() -> None:
    meters, numbers = Meters(), iter([2.0, 3.0])
    meters.gauge("g", "A number", lambda: next(numbers))
    assert [lines(meters), lines(meters)] == [["g 2.0"], ["g 3.0"]]


class Reference:
    """The same numbers, kept by prometheus_client itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ("model", "version", "route", "protocol")
        self._calls = Counter(
            "servegate_calls", "c", (*names, "verb", "code"), registry=self.registry
        )
        self._errors = Counter("servegate_errors", "e", (*names, "error"), registry=self.registry)
        self._seconds = Histogram(
            "servegate_call_seconds",
            "s",
            names,
            buckets=[float(bound) for bound in BOUNDS],
            registry=self.registry,
        )

    def add(
        self, asked: Call, chosen: Choice | None, code: str, seconds: float, *, answered: bool
    ) -> None:
        labels = (*(chosen.labels if chosen else ("", "", "")), asked.protocol)
        if answered:
            self._calls.labels(*labels, asked.verb.value, code).inc()
        if not answered or code != "200":
            self._errors.labels(*labels, code).inc()
        if asked.verb is Verb.INFER and chosen is not None:
            self._seconds.labels(*labels).observe(seconds)


def samples(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


@given(
    st.lists(
        st.tuples(
            st.builds(
                call,
                st.sampled_from([Verb.INFER, Verb.INFER, Verb.READY]),
                protocol=st.sampled_from(["http", "grpc"]),
            ),
            st.sampled_from([choice(1), choice(2), choice(1, physical="m--01234567"), None]),
            st.sampled_from(["200", "400", "no_replica"]),
            st.sampled_from([0.0, 0.0005, 0.25, 0.5, 2.0, 60.0, 128.0]),  # sums are exact
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_the_numbers_are_those_that_prometheus_own_client_keeps(
    events: list[tuple[Call, Choice | None, str, float, bool]],
) -> None:
    meters, reference = Meters(), Reference()
    for asked, chosen, code, seconds, answered in events:
        if answered:
            meters.call_answered(asked, chosen, code, seconds, good=code == "200")
        else:
            meters.call_failed(asked, chosen, code, seconds)
        reference.add(asked, chosen, code, seconds, answered=answered)
    theirs = samples(reference.registry)
    for _ in range(2):  # reading changes nothing
        ours = samples(meters.registry)
        assert ours.keys() == theirs.keys()
        assert ours == pytest.approx(theirs)
