"""Objectives: what a model promises its callers."""

from refusals import refusal

from serve.core.errors import Invalid
from serve.core.objectives import Objective


def test_an_objective_is_a_quantile_and_a_limit() -> None:
    for text, quantile, limit in (
        ("p99<50ms", 99.0, 0.05),
        ("p99.9<1.5s", 99.9, 1.5),
        (" p50 < 2ms ", 50.0, 0.002),
        ("p99.999<0.5ms", 99.999, 0.0005),
    ):
        assert Objective.parse(text) == Objective(quantile, limit), (text, quantile)


def test_anything_else_is_no_objective() -> None:
    for text in (
        *("", "p99", "99<50ms", "p99<50", "p99<50us", "p100<5ms", "p99>5ms", "p0<5ms", "p99<0ms"),
        *("p99<-5ms", "p99<5ms p50<1ms", "p<5ms", "p99<5 ms"),
    ):
        refusal(Invalid, Objective.parse, text)


def test_an_objective_reads_what_it_writes() -> None:
    for text in (
        "p99<50ms",
        "p99.9<1500ms",
        "p50<0.25ms",
        "p99<3600s",
        "p99<1234567ms",
        "p99.999<1ms",
    ):
        objective = Objective.parse(text)
        assert Objective.parse(str(objective)) == objective, text
