"""The report of an evaluation as a page shows it."""

from typing import Any

from serve.statistics.gates import parse_gates
from serve.workbench.evaluation.report import report
from serve.workbench.evaluation.results import OutputKind, RowResult, SideOutput
from serve.workbench.evaluation.web.report import EvaluationPage, drop_text, report_of


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
