"""A labelled set decides by the rows that are lost, and says how sure that is."""

import numpy as np
import pytest
from refusals import refusal
from workbench.conversion.gate.plain_models import bent, code, dense, judge, step, y_of

from serve.core.errors import ConversionFailed
from serve.tensors.expected_outputs import Tolerance
from serve.workbench.conversion.gate import InputSamples, Labelled
from serve.workbench.conversion.gate.metric import Metric, measure
from serve.workbench.conversion.report import GateStep
from serve.workbench.conversion.request import Precision

X = np.random.default_rng(3).standard_normal((200, 4)).astype(np.float32)
LABELS = dense({"x": X})["y"].argmax(axis=-1)
WIDE = {"": Tolerance(atol=10.0)}


def labelled(labels=LABELS, x=X):
    return Labelled(InputSamples({"x": x}, {"x": 1}, len(x), True), labels)


def wrong_in(count):
    """Takes the lead from the winner in the first rows of the set."""

    def turn(x):
        is_first = (x[:, None] == X[:count]).all(axis=-1).any(axis=-1, keepdims=True)
        return np.where(is_first, -bent(x), bent(x))

    return y_of(turn)


@pytest.mark.parametrize(("count", "refusal"), [(0, ""), (1, ""), (2, "metric_dropped")])
def test_the_drop_may_reach_what_is_allowed_and_no_more(count, refusal):
    verdict = judge(dense, wrong_in(count), labelled=labelled(), tolerances=WIDE, max_drop=0.005)
    assert code(verdict) == refusal


def test_the_report_has_the_counts_and_an_interval():
    verdict = judge(dense, wrong_in(4), labelled=labelled(), tolerances=WIDE, max_drop=1)
    metric = step(verdict, GateStep.NUMBERS).facts["metric"]
    assert (metric["rows"], metric["right before"], metric["right after"]) == (200, 200, 196)
    assert metric["drop"] == pytest.approx(0.02)
    low, high = metric["interval"]
    assert low < 0.02 < high


def test_int8_with_labels_is_judged_by_them():
    coarse = y_of(lambda x: bent(x) * np.float32(2))
    asked = {"precision": Precision.INT8}
    assert not judge(dense, coarse, **asked).passed
    assert judge(dense, coarse, labelled=labelled(), **asked).passed
    assert code(judge(dense, wrong_in(50), labelled=labelled(), **asked)) == "metric_dropped"


def test_nan_is_refused_even_where_labels_decide():
    def broken(x):
        y = bent(x)
        y[0, y[0].argmin()] = np.nan
        return y

    verdict = judge(dense, y_of(broken), labelled=labelled(), precision=Precision.INT8)
    assert code(verdict) == "not_finite"


def test_one_output_of_truth_values_is_held_against_labels_by_its_middle():
    share = y_of(lambda x: 1 / (1 + np.exp(-x[:, :1])))
    truth = (X[:, 0] > 0).astype(np.int64)
    metric = measure(share, share, labelled(truth))
    assert (metric.before, metric.after, metric.rows) == (200, 200, 200)


def test_each_pixel_may_have_a_label():
    pixels = y_of(lambda x: np.stack([x, -x], axis=-1))
    metric = measure(pixels, pixels, labelled((X < 0).astype(np.int64)))
    assert (metric.rows, metric.after) == (800, 800)


def test_labels_that_fit_no_output_are_the_users_matter():
    error = refusal(ConversionFailed, measure, dense, dense, labelled(LABELS + 1))
    assert error.code == "samples_invalid" and "up to 3" in error.why


def test_a_metric_says_what_has_changed():
    for before, after, lost, text in (
        (583, 583, 0, "583 of 599 correct before and after"),
        (583, 583, 2, "583 of 599 correct before and after, 2 of them different rows"),
        (583, 580, 4, "580 of 599 correct, 583 before (0.50 pp lost)"),
        (580, 583, 0, "583 of 599 correct, 580 before (0.50 pp gained)"),
    ):
        assert str(Metric("y", 599, before, after, lost, lost + after - before)) == text
