"""What pages say: preprocessing, shares, results of tries and reports of evaluations."""

from typing import Any

import pytest

from serve.admin.web.preprocessing_text import in_words
from serve.admin.web.results import sides_of, verdict_of
from serve.admin.web.sentences import chance_text, decision_text, p_text, shape_text
from serve.admin.web.shares import VersionShare, shares
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
from serve.statistics.gates import parse_gates
from serve.workbench.evaluation.report import report
from serve.workbench.evaluation.results import OutputKind, RowResult, SideOutput
from serve.workbench.evaluation.web.report import EvaluationPage, drop_text, report_of


def test_steps_are_told_in_their_order() -> None:
    picture = {
        "dtype": "FP32",
        "kind": "image",
        "mean": [0.5, 0.4],
        "std": [0.2, 0.1],
        "scale": [1, 255],
        "crop": [224, 224],
        "resize": {"shortest": 256},
        "resample": "bilinear",
        "color": "rgb",
        "layout": "CHW",
    }
    text = {"kind": "text", "as": "utf8", "length": 16, "pad": 1, "lower": True, "dtype": "INT32"}
    strange = {"kind": "image", "mean": [0.0], "std": [1.0], "whirl": 3}  # some change nothing
    assert in_words({"inputs": {"x": picture, "t": text, "s": strange}}) == {
        "x": [
            "Decode the picture",
            "Convert to RGB",
            "Resize the shorter side to 256 pixels (bilinear filter)",
            "Crop the centre to 224 × 224",
            "Scale by 1/255",
            "Subtract the mean (0.5, 0.4), divide by the standard deviation (0.2, 0.1)",
            "Arrange as CHW (channels, height, width)",
            "Convert to FP32",
        ],
        "t": [
            "Read the text",
            "Convert to lower case",
            "Encode as UTF-8, one number per byte",
            "Truncate to 16 values, or pad with 1",
            "Convert to INT32",
        ],
        "s": ["Decode the picture", "whirl: 3"],
    }
    for document in ({}, {"inputs": None}, {"inputs": {}}, {"inputs": {"x": 3}}):
        assert in_words(document) == {}


def test_shares_lie_beside_each_other_and_fill_the_whole() -> None:
    assert shares({4: 25, 2: 75, 3: 0}) == (
        VersionShare(2, 0.0, 0.75, 0),
        VersionShare(4, 0.75, 0.25, 1),
    )
    assert shares({}) == shares({1: 0}) == ()


def test_why_a_version_answered_is_told() -> None:
    for by, asked, said in (
        ("label", "stable", "label 'stable' points to it"),
        ("number", "3", "requested by version number"),
        ("split", "", "chosen by the traffic split"),
        ("mirror", "", "chosen by mirror"),
        ("", "", "reason unknown"),
    ):
        assert decision_text(by, asked) == said


def test_mcnemars_test_is_told_in_words() -> None:
    for only_a, only_b, p, said in (
        (4, 12, 0.077, "B is right on 12 rows where A is wrong, and A on 4 rows where B is wrong."),
        (4, 12, 0.077, "The difference may be chance (McNemar's test, p = 0.077)."),
        (12, 1, 0.0034, "A is right on 12 rows where B is wrong, and B on 1 row where A is wrong."),
        (12, 1, 0.0034, "The difference is unlikely to be chance"),
        (1, 0, 1.0, "A is right on 1 row where B is wrong"),
        (3, 3, 1.0, "B is right on 3 rows where A is wrong, and A on 3 rows where B is wrong."),
        (0, 0, 1.0, "Both versions are right on the same rows."),
        (0, 0, None, "No row has results from both versions."),
    ):
        assert said in chance_text(only_a, only_b, p)
    assert [p_text(p) for p in (0.03, 0.0001, 1e-9)] == ["= 0.03", "= 0.0001", "< 0.0001"]
    assert shape_text((-1, 8, 8)) == "[any, 8, 8]", "a free length is called any"


# --- a try ---------------------------------------------------------------------------------------


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
    for scores, lengths in (([0.9, 0.1], [90.0, 10.0]), ([4.0, -4.0], [100.0, 0.0]), ([None], [0])):
        ranked = list(enumerate(scores))
        (row,) = sides_of(made(side(output([scores], ranked))))[0].outputs[0].rows
        assert [bar.share for bar in row] == lengths
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


# --- the report of an evaluation -----------------------------------------------------------------


def numbers(pairs: list[tuple[str, str, str]], *gates: str) -> dict[str, Any]:
    """Of rows (label, what A says, what B says)."""
    results = [
        RowResult(
            place, label, "", {}, SideOutput(a, milliseconds=1.0), SideOutput(b, milliseconds=2.0)
        )
        for place, (label, a, b) in enumerate(pairs)
    ]
    return report(results, OutputKind.CLASSES, parse_gates(gates, two=True), two=True)


def of(pairs: list[tuple[str, str, str]], *gates: str) -> EvaluationPage:
    found = report_of(numbers(pairs, *gates))
    assert found is not None
    return found


ROWS = [("0", "0", "0"), ("1", "1", "0"), ("1", "0", "1"), ("0", "1", "0")] * 5


def test_gates_are_told_with_the_unit_of_their_number() -> None:
    found = of(ROWS, "accuracy(b)>=0.5", "p99(a)<1ms", "drop<=0.5pp", "mcnemar<0.05").gates
    assert [one.value for one in found] == ["75.00 %", "1 ms", "−25.00 percentage points", "0.3018"]
    assert [one.passed for one in found] == [True, False, True, False]


def test_the_marks_of_intervals_lie_on_an_axis_that_ends_at_one() -> None:
    axis = of(ROWS).accuracy
    assert axis is not None
    assert [mark.letter for mark in axis.marks] == ["A", "B"]
    assert (axis.ticks[0][0], axis.ticks[-1]) == (0.0, (100.0, "100 %"))
    for mark in axis.marks:
        assert 0 <= mark.start <= mark.at <= mark.start + mark.width <= 100.0001
    for told in ("0", "1"):  # accuracies at both ends
        axis = of([("0", told, told)] * 3).accuracy
        assert axis is not None and len(axis.ticks) >= 2
    assert report_of(None) is None


def test_the_difference_is_told_from_the_better_side() -> None:
    low, high = -0.0771, -0.0365
    assert drop_text({"value": -0.0551, "low": low, "high": high}) == (
        "B scores 5.51 percentage points higher (95 % interval: 3.65 to 7.71)."
    )
    assert drop_text({"value": 0.01, "low": -0.02, "high": 0.04}) == (
        "A scores 1.00 percentage points higher (95 % interval: −2.00 to 4.00)."
    )


def test_confusion_is_drawn_for_both_sides_and_their_difference() -> None:
    found = of(ROWS)
    assert [one.title for one in found.matrices] == ["A", "B", "B − A"]
    counts = [[square.count for square in squares] for _, squares in found.matrices[0].lines]
    assert counts == [[5, 5], [5, 5]]
    difference = {
        square.count: square.shade for _, row in found.matrices[2].lines for square in row
    }
    assert difference == {5: 8, -5: -8, 0: 0}
    assert [row[place].is_right for place, (_, row) in enumerate(found.matrices[0].lines)] == [
        True
    ] * 2


def test_many_classes_come_later_and_too_many_are_not_drawn() -> None:
    for classes, drawn, is_long, too_many in (
        (5, 3, False, False),
        (30, 3, True, False),
        (60, 0, True, True),
        (300, 0, False, True),
    ):
        found = of([(str(one), str(one), str(one)) for one in range(classes)])
        shown = (len(found.matrices), found.is_long, found.too_many)
        assert shown == (drawn, is_long, too_many), classes
    rare = of([("0", "0", "0")] * 5000 + [("0", "1", "0")])
    (_, squares), *_ = rare.matrices[0].lines
    assert [square.shade for square in squares] == [8, 1], "once among thousands has a colour"
