"""Metrics of several processes as one text, and the log as lines for people or programs."""

import json
import logging
import sys

from builders import call, choice
from prometheus_client.parser import text_string_to_metric_families

from serve.core.calls import Verb
from serve.telemetry import JsonFormatter, Meters, TextFormatter, merge

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: bytes) -> Samples:
    """Every sample by name and labels; each of them once."""
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


CALLS = """\
# HELP servegate_calls_total Calls
# TYPE servegate_calls_total counter
"""


def test_counters_of_the_same_labels_add_up() -> None:
    one = CALLS + 'servegate_calls_total{model="m"} 3\nservegate_calls_total{model="x"} 1\n'
    two = CALLS + 'servegate_calls_total{model="m"} 4\n'
    assert samples(merge({"worker-0": one, "worker-1": two})) == {
        key("servegate_calls_total", model="m"): 7,
        key("servegate_calls_total", model="x"): 1,
    }


def test_histograms_add_up_bucket_by_bucket() -> None:
    text = """\
# TYPE s histogram
s_bucket{le="0.1",model="m"} 1
s_bucket{le="+Inf",model="m"} 2
s_count{model="m"} 2
s_sum{model="m"} 0.5
"""
    assert samples(merge({"a": text, "b": text, "c": text})) == {
        key("s_bucket", le="0.1", model="m"): 3,
        key("s_bucket", le="+Inf", model="m"): 6,
        key("s_count", model="m"): 6,
        key("s_sum", model="m"): 1.5,
    }


def test_gauges_keep_apart_by_their_source() -> None:
    text = '# TYPE g gauge\ng{replica="a"} 1\n'
    assert samples(merge({"worker-0": text, "control": text})) == {
        key("g", replica="a", source="worker-0"): 1,
        key("g", replica="a", source="control"): 1,
    }


def test_help_and_type_are_kept() -> None:
    text = merge({"a": CALLS + "servegate_calls_total 1\n"}).decode()
    assert "# HELP servegate_calls_total Calls" in text
    assert "# TYPE servegate_calls_total counter" in text


def test_the_text_of_real_meters_merges_with_itself() -> None:
    meters = Meters()
    meters.gauge("servegate_calls_in_flight", "Calls in flight", lambda: 2.0)
    meters.call_answered(call(Verb.INFER), choice(), "200", 0.01, good=True)
    meters.call_failed(call(), None, "unknown_model", 0.0)
    alone = samples(meters.text())
    both = samples(merge({"worker-0": meters.text().decode(), "worker-1": meters.text().decode()}))
    doubled = {one: 2 * value for one, value in alone.items() if "in_flight" not in one[0]}
    assert doubled.items() <= both.items()
    gauges = [one for one in both if one[0] == "servegate_calls_in_flight"]
    assert len(gauges) == 2
    assert len(both) == len(doubled) + 2


def test_a_source_that_says_something_else_does_not_silence_the_others() -> None:
    texts = {"worker-0": CALLS + "servegate_calls_total 1\n", "control": "Invalid host header"}
    assert samples(merge(texts))[key("servegate_calls_total")] == 1


def test_without_sources_there_is_nothing_to_tell() -> None:
    assert merge({}) == b""


def test_a_label_with_quotes_and_lines_survives() -> None:
    text = '# TYPE c_total counter\nc_total{error="a \\"b\\"\\n\\\\c"} 1\n'
    assert samples(merge({"a": text, "b": text})) == {key("c_total", error='a "b"\n\\c'): 2}


# --- logs ----------------------------------------------------------------------------------------


def record(message: str = "größe %s", *, replica: str | None = None) -> logging.LogRecord:
    made = logging.LogRecord("servegate.x", logging.WARNING, "x.py", 1, message, ("ü",), None)
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


def test_a_line_for_programs_is_one_json_object() -> None:
    line = JsonFormatter().format(record(replica="local-0"))
    item = json.loads(line)
    assert "\n" not in line
    assert (item["level"], item["logger"], item["message"], item["replica"]) == (
        "warning",
        "servegate.x",
        "größe ü",
        "local-0",
    )


def test_a_traceback_stays_inside_the_json_object() -> None:
    line = JsonFormatter().format(failed())
    assert "\n" not in line
    assert "ValueError: broken" in json.loads(line)["exception"]


def test_a_line_for_people_names_level_logger_and_replica() -> None:
    line = TextFormatter().format(record(replica="local-0"))
    assert line.endswith(" warning servegate.x[local-0]: größe ü")
    assert TextFormatter().format(record()).endswith(" warning servegate.x: größe ü")


def test_a_traceback_for_people_follows_its_line() -> None:
    first, *rest = TextFormatter().format(failed()).splitlines()
    assert first.endswith("größe ü")
    assert rest[-1] == "ValueError: broken"
