"""Sums over processes that come and go: they never fall, and gauges are facts of now."""

from collections.abc import Mapping

from builders import call, choice
from prometheus_client.core import Metric

from serve.app.totals import Reading, Totals
from serve.core.calls import Verb
from serve.telemetry import Meters

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(metrics: tuple[Metric, ...]) -> Samples:
    """Every sample by name and labels; each of them once."""
    found: Samples = {}
    for family in metrics:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def once(texts: Mapping[str, str]) -> Samples:
    """The sums of one look at these sources."""
    return samples(Totals().add({name: Reading(text) for name, text in texts.items()}))


def calls(count: float) -> str:
    return f"# TYPE calls_total counter\ncalls_total {count}\n"


class Scene:
    """Scrapes of several workers, one after the other."""

    def __init__(self) -> None:
        self.totals = Totals()

    def scrape(self, **workers: tuple[int, float]) -> float:
        """The number of calls in all; each worker is (its life, what it counted in it)."""
        readings = {name: Reading(calls(n), life) for name, (life, n) in workers.items()}
        return samples(self.totals.add(readings))[key("calls_total")]


def test_counters_of_the_same_labels_add_up() -> None:
    head = "# TYPE calls counter\n"
    one = head + 'calls_total{model="m"} 3\ncalls_total{model="x"} 1\n'
    two = head + 'calls_total{model="m"} 4\n'
    assert once({"worker-0": one, "worker-1": two}) == {
        key("calls_total", model="m"): 7,
        key("calls_total", model="x"): 1,
    }


def test_histograms_add_up_bucket_by_bucket() -> None:
    text = """\
# TYPE s histogram
s_bucket{le="0.1",model="m"} 1
s_bucket{le="+Inf",model="m"} 2
s_count{model="m"} 2
s_sum{model="m"} 0.5
"""
    assert once({"a": text, "b": text, "c": text}) == {
        key("s_bucket", le="0.1", model="m"): 3,
        key("s_bucket", le="+Inf", model="m"): 6,
        key("s_count", model="m"): 6,
        key("s_sum", model="m"): 1.5,
    }


def test_gauges_keep_apart_by_their_source() -> None:
    text = '# TYPE g gauge\ng{replica="a"} 1\n'
    assert once({"worker-0": text, "control": text}) == {
        key("g", replica="a", source="worker-0"): 1,
        key("g", replica="a", source="control"): 1,
    }


def test_a_worker_that_restarts_does_not_make_the_sum_fall() -> None:
    scene = Scene()
    assert scene.scrape(a=(1, 100), b=(2, 50)) == 150
    assert scene.scrape(a=(3, 4), b=(2, 60)) == 164
    assert scene.scrape(a=(3, 14), b=(2, 60)) == 174


def test_a_worker_that_does_not_answer_does_not_make_the_sum_fall() -> None:
    scene = Scene()
    assert scene.scrape(a=(1, 100), b=(2, 50)) == 150
    assert scene.scrape(b=(2, 51)) == 151
    assert scene.scrape(a=(1, 103), b=(2, 51)) == 154


def test_a_worker_that_was_away_and_restarted_meanwhile_is_counted_once() -> None:
    scene = Scene()
    scene.scrape(a=(1, 100), b=(2, 50))
    assert scene.scrape(b=(2, 50)) == 150
    assert scene.scrape(a=(3, 1), b=(2, 50)) == 151


def test_many_lives_add_up() -> None:
    scene = Scene()
    assert [scene.scrape(a=(life, 10)) for life in range(5)] == [10, 20, 30, 40, 50]


def test_series_of_a_life_that_is_over_stay_in_the_sum() -> None:
    totals = Totals()
    old, new = (f'# TYPE c counter\nc_total{{model="{name}"}} 2\n' for name in ("old", "new"))
    totals.add({"a": Reading(old, 1)})
    assert samples(totals.add({"a": Reading(new, 2)})) == {
        key("c_total", model="old"): 2,
        key("c_total", model="new"): 2,
    }


def test_a_counter_of_a_source_without_lives_begins_again_as_it_says() -> None:
    totals = Totals()
    totals.add({"control": Reading(calls(100))})
    assert samples(totals.add({"control": Reading(calls(2))})) == {key("calls_total"): 2}


def test_a_gauge_is_left_out_while_its_source_does_not_answer() -> None:
    totals = Totals()
    text = "# TYPE g gauge\ng 1\n"
    totals.add({"a": Reading(text), "b": Reading(text)})
    assert samples(totals.add({"b": Reading(text)})) == {key("g", source="b"): 1}


def test_help_and_type_are_kept() -> None:
    text = "# HELP calls_total Calls\n" + calls(1)
    (family,) = Totals().add({"a": Reading(text)})
    assert (family.name, family.documentation, family.type) == ("calls", "Calls", "counter")


def test_the_text_of_real_meters_adds_up_with_itself() -> None:
    meters = Meters()
    meters.gauge("servegate_calls_in_flight", "Calls in flight", lambda: 2.0)
    meters.call_answered(call(Verb.INFER), choice(), "200", 0.01, good=True)
    meters.call_failed(call(), None, "unknown_model", 0.0)
    text = meters.text().decode()
    alone, both = once({"worker-0": text}), once({"worker-0": text, "worker-1": text})
    doubled = {one: 2 * value for one, value in alone.items() if "in_flight" not in one[0]}
    assert doubled.items() <= both.items()
    gauges = [one for one in both if one[0] == "servegate_calls_in_flight"]
    assert len(gauges) == 2
    assert len(both) == len(doubled) + 2


def test_a_source_that_says_something_else_silences_nobody_and_loses_nothing() -> None:
    totals = Totals()
    totals.add({"a": Reading(calls(5), 1), "b": Reading(calls(1), 2)})
    said = {"a": Reading("Invalid host header", 1), "b": Reading(calls(2), 2)}
    assert samples(totals.add(said)) == {key("calls_total"): 7}


def test_without_sources_there_is_nothing_to_tell() -> None:
    assert Totals().add({}) == ()


def test_a_label_with_quotes_and_lines_survives() -> None:
    text = '# TYPE c counter\nc_total{error="a \\"b\\"\\n\\\\c"} 1\n'
    assert once({"a": text, "b": text}) == {key("c_total", error='a "b"\n\\c'): 2}
