"""A try as a page shows it."""

from typing import Any

import pytest

from serve.admin.web.results import sides_of, verdict_of
from serve.control.tries.records import (
    InputLine,
    Latency,
    OutputDifference,
    OutputLine,
    Top,
    Try,
    TryFailure,
    TrySide,
)


def output(values: Any, *rows: list[tuple[int, float | None]], name: str = "y") -> OutputLine:
    top = [[Top(index, "", value) for index, value in row] for row in rows]
    return OutputLine(name, "FP32", [1, 2], values, False, top, 0.0, 1.0, 0.5)


def side(*outputs: OutputLine, latency: Latency | None = None, **more: Any) -> TrySide:
    given: dict[str, Any] = {"side": "a", "asked": "1", "version": "1", "by": "number"}
    given |= {"generation": 7, "flavour": "", "error": None, "seconds": 0.01, "latency": latency}
    return TrySide(**{**given, **more}, outputs=list(outputs))


def made(*sides: TrySide, difference: dict[str, OutputDifference] | None = None) -> Try:
    inputs = [InputLine("x", "FP32", [1, 2], "json", False)]
    return Try("0" * 12, "m", 0.0, "ada", "http", 0, inputs, [], list(sides), difference)


def test_bars_are_as_long_as_probabilities_are_high_or_fill_the_whole_width() -> None:
    for scores, shares in (([0.9, 0.1], [90.0, 10.0]), ([4.0, -4.0], [100.0, 0.0]), ([None], [0])):
        ranked = list(enumerate(scores))
        (row,) = sides_of(made(side(output([scores], ranked))))[0].outputs[0].rows
        assert [bar.share for bar in row] == shares
        assert [(bar.rank, bar.text) for bar in row][:1] == [(1, "class 0")]


def test_ranks_of_the_other_side_are_told_where_they_moved() -> None:
    a = side(output([], [(0, 0.5), (1, 0.3), (2, 0.2)]))
    b = side(output([], [(1, 0.5), (0, 0.3), (7, 0.2)]), side="b")
    first, second = sides_of(made(a, b))
    assert not any(bar.moved for bar in first.outputs[0].rows[0])
    assert [(bar.moved, bar.is_up) for bar in second.outputs[0].rows[0]] == [
        ("rank 2 in A", True),
        ("rank 1 in A", False),
        ("not in A's top 3", True),
    ]


def test_the_parts_of_an_exact_latency_fill_the_bar() -> None:
    took = Latency(0.010, 0.004, 0.001, 0.001, 0.003, 0.001, exact=True, calls=1)
    (one,) = sides_of(made(side(output([]), latency=took)))
    assert [round(part.width) for part in one.segments] == [40, 10, 10, 30, 10]
    assert one.segments[-1].start + one.segments[-1].width == pytest.approx(100)
    assert one.timing.startswith("Exact")
    averages = Latency(0.01, None, 0.001, 0.001, 0.003, 0.001, calls=9)
    for took, word in (
        (averages, "averages of 9 calls"),
        (Latency(0.01), "Only the round trip"),
    ):
        (one,) = sides_of(made(side(output([]), latency=took)))
        assert one.segments == () and word in one.timing


def test_values_become_lines_of_cells_that_are_cut_and_folded_when_they_are_many() -> None:
    shown = sides_of(made(side(output([[[1.5, None], [True, "a"]]]))))[0].outputs[0]
    assert shown.table == (("1.5", "not finite"), ("true", "a"))
    assert not shown.is_folded and not shown.is_cut
    shown = sides_of(made(side(output([[0.0] * 60] * 200))))[0].outputs[0]
    assert (len(shown.table), len(shown.table[0])) == (100, 50)
    assert shown.is_cut and shown.is_folded


def differs(equal: float, agreement: float, *rows: int) -> OutputDifference:
    return OutputDifference(equal=equal, kind="classes", agreement=agreement, differing=list(rows))


def test_the_difference_is_told_in_a_sentence() -> None:
    a, b = (side(output([], [(place, 0.9)])) for place in (3, 8))
    for difference, good, said in (
        (OutputDifference(equal=1), True, "identical"),
        (differs(0.5, 1.0), True, "Same top class"),
        (differs(0, 0.0, 0), False, "class 3 (A), class"),
        (OutputDifference(equal=0.9), False, "The outputs differ"),
        (OutputDifference(refused="the shapes differ"), False, "cannot be compared: the shapes"),
    ):
        found = verdict_of(made(a, b, difference={"y": difference}))
        assert found is not None and found.is_good is good and said in found.text
    failed = side(error=TryFailure("unavailable", "nobody", "", ""), version="", by="")
    assert verdict_of(made(a)) is None
    assert verdict_of(made(a, failed)) is None
    assert sides_of(made(a, failed))[1].outputs == ()
