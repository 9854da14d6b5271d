"""Chosen series of a metrics text: as Prometheus' own client writes them, and as others may."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from refusals import refusal

from serve.wire.prometheus import MetricSample, at_source, samples, split


def read(text, *names, **having):
    return list(samples(text, names, having=having))


def test_only_the_series_that_are_asked_for_are_read() -> None:
    a, total = MetricSample("a", {}, 1.0), MetricSample("a_total", {}, 2.0)
    for text, names, found in (
        ("# TYPE a counter\na 1\na_b 2\nb 3\n", ["a"], [a]),
        ("# TYPE a counter\na 1\na_total 2\n", ["a", "a_total"], [a, total]),
        ("b 1\nthis is nothing\n", ["a"], []),
        ("", ["a"], []),
    ):
        assert read(text, *names) == found, text


def test_labels_are_read_whatever_they_hold() -> None:
    hostile = ['a"b', "a\\b", "a\nb", "a\\nb", "{},= #", "a\u2028b\x85c", "", "ünï", '\\"}']
    registry = CollectorRegistry()
    gauge = Gauge("g", "text", ["model", "other"], registry=registry)
    for number, name in enumerate(hostile):
        gauge.labels(name, "x").set(number)
    found = read(generate_latest(registry).decode(), "g")
    assert [(one.labels["model"], one.value) for one in found] == [
        (name, float(number)) for number, name in enumerate(hostile)
    ]


def test_series_are_chosen_by_a_label() -> None:
    for name in ("digits", 'a"b', "a\\b", "a\nb"):
        registry = CollectorRegistry()
        counter = Counter("c", "text", ["model", "submodel"], registry=registry)
        counter.labels(name, "x").inc(2)
        counter.labels("x", name).inc(3)
        (found,) = read(generate_latest(registry).decode(), "c_total", model=name)
        assert found.value == 2.0, name


def test_lines_may_be_written_in_many_ways() -> None:
    for series, rest, value in (
        ("a", " 1", 1.0),
        ("a", "\t1.5e3", 1500.0),
        ("a", " +Inf", float("inf")),
        ("a", " 1 1700000000000", 1.0),
        ('a{x="y"}', " 1 1700000000000", 1.0),
        ('a{x="y z"}', " +Inf", float("inf")),
        ("a{}", " 1", 1.0),
    ):
        (found,) = read(series + rest + "\n", "a")
        assert found.value == value, series + rest
        assert split(series + rest) == (series, value), series + rest
    for line in ('a{ x = "y" , } 1', 'a{x="y",} 1\r'):
        assert read(line + "\n", "a") == [MetricSample("a", {"x": "y"}, 1.0)], line
    for line in ("a", "404 page not found", "<html>a b</html>", "a b c 1", ""):
        refusal(ValueError, split, line)


def test_a_wanted_line_that_cannot_be_read_is_an_error() -> None:
    for line in ("a", "a x", 'a{x="y} 1', "a{x=y} 1", 'a{x="y"z="w"} 1', "a{"):
        refusal(ValueError, read, f"# HELP a text\n{line}\n", "a")
    for text in ("<html>not found</html>", "404 page not found\n", "{}"):
        refusal(ValueError, read, text, "a")


def test_a_series_gets_the_name_of_its_source_whatever_its_labels_hold() -> None:
    for series, labels in (
        ("a", {}),
        ("a{}", {}),
        ('a{x="y"}', {"x": "y"}),
        ('a{x="y",}', {"x": "y"}),
        ('a{x="source="}', {"x": "source="}),
        ('a{x=",source="}', {"x": ",source="}),
        ('a{x="\\"source=\\""}', {"x": '"source="'}),
        ('a{x="b\\\\"}', {"x": "b\\"}),
        ('a{datasource="y"}', {"datasource": "y"}),
    ):
        assert read(f"{at_source(series, 'w')} 1", "a") == [
            MetricSample("a", {**labels, "source": "w"}, 1.0)
        ], series


def test_a_series_that_names_a_source_keeps_that_name_before_the_other() -> None:
    for series in (
        'a{source="w"}',
        'a{x=",source=",source="w"}',
        'a{source="w",x="y"}',
        'a{source="w",x="source="}',
        'a{source="w",x=",source="}',
    ):
        (found,) = read(f"{at_source(series, 'g')} 1", "a")
        (before,) = read(f"{series} 1", "a")
        assert found.labels == {**before.labels, "source": "w@g"}, series
