"""The numbers of an evaluation are those of scikit-learn, statsmodels and numpy; its gates.

The two take seconds to import, so the tests that ask them do, and not every run that collects this.
"""

import csv
import io
from types import MappingProxyType

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.statistics.gates import JudgedGate, judge, parse_gate, parse_gates
from serve.statistics.intervals import Pairs, mcnemar, newcombe, wilson
from serve.workbench.evaluation import statistics
from serve.workbench.evaluation.exports import csv_pieces
from serve.workbench.evaluation.results import (
    Bucket,
    OutputKind,
    RowResult,
    SideOutput,
    from_lines,
    to_lines,
)


def results(seed=7, count=400):
    rng = np.random.default_rng(seed)
    made = []
    for row in range(count):
        label = int(rng.integers(6))
        sides = []
        for skill in (0.8, 0.7):
            right = rng.random() < skill
            predicted = str(label if right else int(rng.integers(7)))
            sure = float(rng.random())
            sides.append(SideOutput(predicted, sure, sure, float(rng.gamma(2.0) + 1)))
        if row % 50 == 3:
            sides[row // 50 % 2] = SideOutput(error="it broke")
        slices = MappingProxyType({"light": "day" if row % 3 else "night"})
        made.append(RowResult(row, str(label), f"{row}.png", slices, *sides))
    return made


def row(label, a, b=None):
    return RowResult(0, label, "", MappingProxyType({}), a, b)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("name", "place"), [("a", 0), ("b", 1)])
def test_accuracy_f1_and_latency_are_those_of_scikit_learn_and_statsmodels(seed, name, place):
    from sklearn.metrics import accuracy_score, f1_score
    from statsmodels.stats.proportion import proportion_confint

    rows = results(seed)
    good = statistics.answered(rows)
    truth = [one.label for one in good]
    told = [(one.a, one.b)[place] for one in good]
    predicted = [one.predicted for one in told]
    side = statistics.side(rows, OutputKind.CLASSES, name)
    hits = sum(a == b for a, b in zip(truth, predicted, strict=True))
    low, high = proportion_confint(hits, len(good), alpha=0.05, method="wilson")
    assert side.accuracy.value == pytest.approx(accuracy_score(truth, predicted), abs=1e-12)
    assert (side.accuracy.low, side.accuracy.high) == pytest.approx((low, high), abs=1e-9)
    assert side.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro"), abs=1e-12)
    assert side.failed == 4
    wanted = np.percentile([one.milliseconds for one in told], [50, 90, 99])
    latency = side.latency
    assert (latency.p50, latency.p90, latency.p99) == pytest.approx(tuple(wanted))


@pytest.mark.parametrize("seed", range(5))
def test_per_class_numbers_and_confusion_matrices_are_those_of_scikit_learn(seed):
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    rows = results(seed)
    good = statistics.answered(rows)
    truth = [one.label for one in good]
    tables = statistics.tables(rows)
    for mine, matrix, predicted in (
        (tables.a, tables.confusion_a, [one.a.predicted for one in good]),
        (tables.b, tables.confusion_b, [one.b.predicted for one in good]),
    ):
        labels = list(tables.labels)
        wanted = precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0)
        found = np.array([(c.precision, c.recall, c.f1) for c in mine]).T
        assert found == pytest.approx(np.array(wanted[:3]), abs=1e-12)
        assert tables.support == tuple(wanted[3])
        assert (matrix == confusion_matrix(truth, predicted, labels=labels)).all()


@pytest.mark.parametrize("seed", range(5))
def test_two_versions_are_compared_as_statsmodels_does(seed):
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar
    from statsmodels.stats.proportion import proportion_confint

    rows = results(seed)
    both = statistics.compared(rows, OutputKind.CLASSES)
    pairs = both.pairs
    table = [[pairs.both, pairs.only_a], [pairs.only_b, pairs.neither]]
    assert both.p == pytest.approx(their_mcnemar(table, exact=True).pvalue, rel=1e-9)
    good = statistics.answered(rows)
    same = sum(one.a.predicted == one.b.predicted for one in good)
    low, high = proportion_confint(same, len(good), method="wilson")
    assert (both.agreement.low, both.agreement.high) == pytest.approx((low, high), abs=1e-9)
    a, b = (statistics.side(rows, OutputKind.CLASSES, name).accuracy.value for name in "ab")
    assert both.drop.value == pytest.approx(a - b, abs=1e-12)
    assert both.drop.low < both.drop.value < both.drop.high


def test_mcnemar_is_exact_for_few_rows_and_for_many():
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar

    for only_a, only_b in ((1, 0), (3, 9), (40, 61), (900, 1100), (0, 2000)):
        wanted = their_mcnemar([[7, only_a], [only_b, 7]], exact=True).pvalue
        assert mcnemar(only_a, only_b) == pytest.approx(wanted, rel=1e-8, abs=1e-300)
    assert mcnemar(0, 0) == mcnemar(5, 5) == 1.0  # theirs is above or at 1 there, or NaN


def test_wilson_is_that_of_statsmodels_also_at_the_ends():
    from statsmodels.stats.proportion import proportion_confint

    for hits, rows in ((0, 1), (1, 1), (0, 20), (20, 20), (3, 7), (590, 599)):
        found = wilson(hits, rows)
        wanted = proportion_confint(hits, rows, method="wilson")
        assert (found.low, found.high) == pytest.approx(wanted, abs=1e-9)


def test_the_interval_of_a_drop_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(1)
    chances = np.array([0.80, 0.09, 0.05, 0.06])  # both, only a, only b, neither
    held = 0
    for _ in range(2000):
        found = newcombe(Pairs(*(int(n) for n in rng.multinomial(300, chances))))
        held += found.low <= chances[1] - chances[2] <= found.high
    assert 0.93 <= held / 2000 <= 0.98


def test_the_interval_of_a_drop_stays_within_what_is_possible():
    all_lost = newcombe(Pairs(0, 10, 0, 0))
    assert all_lost.value == 1
    assert all_lost.high <= 1
    assert newcombe(Pairs(0, 0, 0, 0)) is None


def test_errors_of_numbers_are_those_of_scikit_learn():
    from sklearn.metrics import mean_absolute_error, root_mean_squared_error

    rng = np.random.default_rng(3)
    truth, told = rng.normal(size=50), rng.normal(size=50)
    pairs = zip(truth.tolist(), told.tolist(), strict=True)
    rows = [row(repr(wanted), SideOutput(repr(found))) for wanted, found in pairs]
    side = statistics.side(rows, OutputKind.NUMBERS, "a")
    assert side.mae == pytest.approx(mean_absolute_error(truth, told))
    assert side.rmse == pytest.approx(root_mean_squared_error(truth, told))
    assert side.accuracy is None


def test_calibration_counts_how_far_confidence_and_accuracy_are_apart():
    bins = statistics.calibration([1.0, 1.0, 0.5, 0.52], [True, False, True, True])
    assert [one.rows for one in bins] == [2, 2]
    told = [SideOutput(*one) for one in (("1", 1, 1), ("0", 1, 1), ("1", 0, 0.5), ("1", 0, 0.52))]
    side = statistics.side([row("1", one) for one in told], OutputKind.CLASSES, "a")
    assert side.ece == pytest.approx(0.5 * 0.5 + 0.5 * (1 - 0.51))
    without_probabilities = [row("1", SideOutput("1", 12.5, None))]
    assert statistics.side(without_probabilities, OutputKind.CLASSES, "a").ece is None


def test_no_rows_are_no_numbers():
    side = statistics.side([], OutputKind.CLASSES, "a")
    assert (side.accuracy, side.macro_f1, side.latency, side.ece) == (None, None, None, None)
    assert statistics.compared([], OutputKind.CLASSES).p is None


def test_in_an_export_a_text_that_looks_like_a_formula_gets_an_apostrophe():
    slices = MappingProxyType({"site": '@SUM("x")'})
    one = RowResult(0, "=1+1", "a\nb", slices, SideOutput("-1", None, None, 2.5), None)
    text = "".join(csv_pieces([one], OutputKind.VALUES))
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["label"], row["slice_site"]) == ("'=1+1", '\'@SUM("x")')
    assert (row["predicted_a"], row["name"], row["milliseconds_a"]) == ("-1", "a\nb", "2.5")
    assert (row["score_a"], row["bucket"]) == ("", "wrong")
    assert "predicted_b" not in row


def test_classes_stand_in_the_order_of_their_numbers():
    assert statistics.in_order({"10", "9", "cat", "-1"}) == ("-1", "9", "10", "cat")


def test_rows_fall_into_buckets():
    def bucket(a, b, kind=OutputKind.CLASSES):
        return row("1", a, b).bucket(kind)

    right, wrong, failed = SideOutput("1"), SideOutput("2"), SideOutput(error="it broke")
    assert bucket(right, right) is Bucket.BOTH_RIGHT
    assert bucket(right, wrong) is Bucket.ONLY_A
    assert bucket(wrong, right) is Bucket.ONLY_B
    assert bucket(wrong, wrong) is Bucket.BOTH_WRONG
    assert bucket(right, failed) is Bucket.FAILED
    assert bucket(right, None) is Bucket.RIGHT
    assert bucket(wrong, None) is Bucket.WRONG
    assert bucket(wrong, None, OutputKind.NUMBERS) is Bucket.ANSWERED


def test_results_come_back_as_they_were_kept():
    rows = [*results(count=60), row("\u2028é", SideOutput("1"))]
    assert from_lines(to_lines(rows)) == rows


# --- gates ----------------------------------------------------------------------------------------


def test_gates_are_read():
    for text, of, sign, limit in (
        ("accuracy(b)>=0.95", "accuracy(b)", ">=", 0.95),
        (" accuracy( b ).low >= 0.9 ", "accuracy(b).low", ">=", 0.9),
        ("accuracy(a)>95%", "accuracy(a)", ">", 0.95),
        ("agreement>=0.97", "agreement", ">=", 0.97),
        ("drop<=0.5pp", "drop", "<=", 0.005),
        ("drop.high<1pp", "drop.high", "<", 0.01),
        ("p99(b)<20ms", "p99(b)", "<", 20.0),
        ("p50(a)<0.5s", "p50(a)", "<", 500.0),
        ("failed(b)<=0", "failed(b)", "<=", 0.0),
        ("mcnemar>0.05", "mcnemar", ">", 0.05),
        ("rmse(b)<1.5", "rmse(b)", "<", 1.5),
    ):
        gate = parse_gate(text, two=True)
        assert (gate.of, gate.sign, gate.text) == (of, sign, text.strip())
        assert gate.limit == pytest.approx(limit)
    assert parse_gate("accuracy>=0.9", two=False).of == "accuracy(a)"


def test_gates_that_cannot_be_judged_say_what_is_known():
    for text, two, word in (
        ("accuracy(b)", True, "is invalid"),
        ("accuracy(b)>=x", True, "is invalid"),
        ("accuracy(b)>=1e999", True, "is invalid"),
        ("precision(b)>0.5", True, "metrics are accuracy(a or b)"),
        ("accuracy>0.5", True, "accuracy(a) or accuracy(b)"),
        ("accuracy(b)>0.5", False, "one version"),
        ("agreement>0.5", False, "the metrics are"),
        ("agreement(b)>0.5", True, "compares both versions"),
        ("p99(b)<20", True, "ms, s, us"),
        ("accuracy(b)>0.5ms", True, "%, pp"),
        ("mcnemar>5%", True, "no unit"),
        ("p99(b).low<20ms", True, ".low and .high"),
        ("accuracy(b).mean>0.5", True, ".low and .high"),
        ("accuracy(b)>0.5" + " " * 300, True, "is invalid"),
    ):
        assert word in str(refusal(Invalid, parse_gate, text, two=two)), text


def test_gates_are_held_against_what_was_measured():
    gates = parse_gates(["accuracy(b)>=0.95", "agreement>0.95", "ece(a)<0.1"], two=True)
    found = judge(gates, {"accuracy(b)": 0.95, "agreement": 0.95, "ece(a)": None})
    assert found == (
        JudgedGate("accuracy(b)>=0.95", 0.95, True),
        JudgedGate("agreement>0.95", 0.95, False),
        JudgedGate("ece(a)<0.1", None, False),
    )
