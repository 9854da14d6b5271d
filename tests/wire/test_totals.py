"""Sums over processes that come and go: they never fall, and gauges are facts of now."""

from collections.abc import Mapping

from builders import call, choice
from prometheus_client.parser import text_string_to_metric_families
from refusals import refusal

from serve.core.calls import Verb
from serve.telemetry import Meters
from serve.wire.totals import SourceReading, Totals

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """Every sample by name and labels, as Prometheus reads it; each of them once."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def added(totals: Totals, readings: Mapping[str, SourceReading]) -> str:
    """What is told once these sources have said that."""
    for name, reading in readings.items():
        totals.take(name, reading)
    return totals.text(readings)


def once(texts: Mapping[str, str]) -> Samples:
    """The sums of one look at these sources."""
    return samples(added(Totals(), {name: SourceReading(text) for name, text in texts.items()}))


def calls(count: float) -> str:
    return f"# TYPE calls_total counter\ncalls_total {count}\n"


class Scene:
    """Scrapes of several workers, one after the other."""

    def __init__(self) -> None:
        self.totals = Totals()

    def scrape(self, **workers: tuple[int, float]) -> float:
        """The number of calls in all; each worker is (its life, what it counted in it)."""
        readings = {name: SourceReading(calls(n), life) for name, (life, n) in workers.items()}
        return samples(added(self.totals, readings))[key("calls_total")]


def test_counters_of_the_same_labels_add_up() -> None:
    head = "# TYPE calls counter\n"
    one = head + 'calls_total{resource="m"} 3\ncalls_total{resource="x"} 1\n'
    two = head + 'calls_total{resource="m"} 4\n'
    assert once({"worker-0": one, "worker-1": two}) == {
        key("calls_total", resource="m"): 7,  # which is no `source`
        key("calls_total", resource="x"): 1,
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


def test_gauges_keep_apart_by_their_source_while_it_answers() -> None:
    text = '# TYPE g gauge\ng{replica="a"} 1\n'
    assert once({"worker-0": text, "control": text}) == {
        key("g", replica="a", source="worker-0"): 1,
        key("g", replica="a", source="control"): 1,
    }
    totals, reading = Totals(), SourceReading("# TYPE g gauge\ng 1\n")
    added(totals, {"a": reading, "b": reading})
    assert samples(added(totals, {"b": reading})) == {key("g", source="b"): 1}
    named = '# TYPE g gauge\ng{source="w"} 1\n# TYPE c counter\nc_total{source="w"} 2\n'
    assert once({"10.0.0.7": named, "10.0.0.8": named}) == {
        key("g", source="w@10.0.0.7"): 1,
        key("g", source="w@10.0.0.8"): 1,
        key("c_total", source="w@10.0.0.7"): 2,
        key("c_total", source="w@10.0.0.8"): 2,
    }


def test_workers_that_restart_or_do_not_answer_do_not_make_the_sum_fall() -> None:
    scene = Scene()
    assert scene.scrape(a=(1, 100), b=(2, 50)) == 150
    assert scene.scrape(a=(3, 4), b=(2, 60)) == 164, "a has restarted"
    assert scene.scrape(a=(3, 14), b=(2, 60)) == 174
    assert scene.scrape(b=(2, 61)) == 175, "a does not answer"
    assert scene.scrape(a=(3, 17), b=(2, 61)) == 178
    assert scene.scrape(b=(2, 61)) == 178
    assert scene.scrape(a=(4, 1), b=(2, 61)) == 179, "a was away and has restarted meanwhile"
    assert [scene.scrape(a=(life, 10)) for life in range(5, 8)] == [189, 199, 209]


def test_one_that_is_forgotten_leaves_what_it_has_counted() -> None:
    scene = Scene()
    scene.scrape(a=(1, 100), b=(2, 50))
    scene.totals.forget("a")
    assert scene.scrape(b=(2, 51)) == 151


def test_what_one_had_counted_before_it_was_heard_of_need_not_count() -> None:
    scene = Scene()
    scene.scrape(a=(1, 100))
    for life, counted, told in ((2, 70, 100), (2, 75, 105), (3, 3, 108)):
        scene.totals.take("b", SourceReading(calls(counted), life), from_now=True)
        assert samples(scene.totals.text(["b"])) == {key("calls_total"): told}, (life, counted)


def test_series_of_a_life_that_is_over_stay_and_a_source_without_lives_begins_again() -> None:
    totals = Totals()
    old, new = (f'# TYPE c counter\nc_total{{model="{name}"}} 2\n' for name in ("old", "new"))
    totals.take("a", SourceReading(old, 1))
    assert samples(added(totals, {"a": SourceReading(new, 2)})) == {
        key("c_total", model="old"): 2,
        key("c_total", model="new"): 2,
    }
    totals = Totals()
    totals.take("control", SourceReading(calls(100)))
    assert samples(added(totals, {"control": SourceReading(calls(2))})) == {key("calls_total"): 2}


def test_families_may_be_left_out() -> None:
    totals = Totals()
    assert totals.text([]) == ""
    totals.take("a", SourceReading("# TYPE g gauge\ng 1\n# TYPE g_more gauge\ng_more 2\n"))
    assert samples(totals.text(["a"], without=["g"])) == {key("g_more", source="a"): 2}


def test_help_and_type_are_kept_and_what_has_no_type_is_summed() -> None:
    text = "# HELP calls_total Calls of all\n" + calls(1)
    (family,) = text_string_to_metric_families(added(Totals(), {"a": SourceReading(text)}))
    assert (family.name, family.documentation, family.type) == ("calls", "Calls of all", "counter")
    text = '# TYPE g gauge\ng 1\nother{x="y"} 2\n'
    assert once({"a": text, "b": text})[key("other", x="y")] == 4


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


def test_a_source_that_says_something_else_loses_nothing() -> None:
    for said in ("Invalid host header", "<html>no</html>", "calls_total x", "# TYPE calls_total"):
        totals = Totals()
        added(totals, {"a": SourceReading(calls(5), 1), "b": SourceReading(calls(1), 2)})
        refusal(
            ValueError, totals.take, "a", SourceReading(f"# TYPE calls_total counter\n{said}\n", 1)
        )
        assert samples(added(totals, {"b": SourceReading(calls(2), 2)})) == {
            key("calls_total"): 7
        }, said


def test_a_label_with_quotes_and_lines_survives() -> None:
    for kind in ("counter", "gauge"):
        text = f'# TYPE c {kind}\nc{{error="a \\"b\\"\\n\\\\c"}} 1\n'
        found = once({"a": text})
        assert dict(next(iter(found))[1])["error"] == 'a "b"\n\\c', kind
