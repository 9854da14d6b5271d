"""Right and wrong answers, and what is said of the wrong ones."""

import numpy as np

from serve.tensors.expected_outputs import NOTHING_SAID, Tolerance, judge_output

NAN, INF = float("nan"), float("inf")


def floats(*values):
    return np.array(values, np.float32)


def why(got, expected, own=NOTHING_SAID, general=NOTHING_SAID):
    return judge_output("y", got, expected, own, general)


def test_floats_may_be_off_by_the_absolute_and_the_relative_tolerance():
    assert why(floats(0, 100), floats(0.00009, 100.09)) == ""
    assert why(floats(0.0002), floats(0)) != ""
    assert why(floats(0.0002), floats(0), general=Tolerance(atol=0.001)) == ""
    assert why(floats(90), floats(100), general=Tolerance(rtol=0.1)) == ""


def test_the_worst_element_is_told_with_its_place_unless_it_is_a_scalar():
    expected = np.zeros((4, 8), np.float32)
    got = expected.copy()
    got[3, 7], expected[3, 7], got[0, 0] = 0.91, 0.12, 0.5
    assert why(got, expected, general=Tolerance(atol=0.001, rtol=0.0)) == (
        "output 'y'[3,7] is 0.91, expected 0.12 (off by 0.79, allowed 0.001)"
    )
    scalar = why(np.ones((), np.float32), np.zeros((), np.float32))
    assert scalar.startswith("output 'y' is 1, expected 0 (off by 1, ")


def test_what_is_not_finite_has_to_be_the_same() -> None:
    for got, expected in ((NAN, 1), (1, NAN), (INF, 1), (1, INF), (-INF, INF), (NAN, INF)):
        loose = Tolerance(atol=1e9, rtol=1.0)
        assert why(floats(got), floats(expected), general=loose) == (
            f"output 'y'[0] is {float(got):.6g}, expected {float(expected):.6g}"
        ), got
        assert why(floats(got), floats(got)) == "", got


def test_shape_and_datatype_have_to_match():
    assert why(floats(1), floats(1, 2)) == "output 'y' has the shape [1], expected [2]"
    assert why(floats(1), np.array([1])) == "output 'y' is FP32, expected INT64"


def test_whole_numbers_have_to_be_equal_unless_the_output_has_a_tolerance_of_its_own():
    got, expected = np.array([1, 5003]), np.array([1, 5000])
    said = "output 'y'[1] is 5003, expected 5000"
    assert why(got, expected, general=Tolerance(rtol=0.1, top1=1.0)) == said
    assert why(got, expected, own=Tolerance(atol=3, rtol=0)) == ""
    assert why(got, expected, own=Tolerance(atol=2, rtol=0)).startswith(said)
    assert why(np.array([True]), np.array([False])) == "output 'y'[0] is True, expected False"


def test_texts_have_to_be_equal():
    got, expected = np.array([b"a", b"\xff"], object), np.array([b"a", b"b"], object)
    assert why(got, expected) == "output 'y'[1] is '\\\\xff', expected 'b'"
    assert why(expected, expected, own=Tolerance(top1=1.0)) == ""


def test_with_top1_only_the_place_of_the_highest_score_counts():
    got, expected = floats([0.1, 0.9], [0.6, 0.4]), floats([0.4, 0.6], [0.4, 0.6])
    assert why(got, expected, general=Tolerance(top1=0.5)) == ""
    assert why(got, expected, general=Tolerance(top1=0.6)) == (
        "output 'y' has the expected top class in 0.5 of the rows, 0.6 are required"
    )
    strict = Tolerance(top1=1.0)
    assert why(got[0], expected[0], general=strict) == ""
    assert why(got[1], expected[1], general=strict) != ""
    # With a tolerance as well, both have to hold.
    got, expected = got[:1], expected[:1]
    assert why(got, expected, general=Tolerance(atol=0.1, top1=1.0)).startswith("output 'y'[0,")
    assert why(got, expected, general=Tolerance(atol=0.31, top1=1.0)) == ""
    # A NaN wins no row, and an output without rows of scores is compared by its values.
    assert why(floats([NAN, 0.9]), floats([0.9, 0.1]), general=strict) == "output 'y'[0,0] is nan"
    single = why(floats([1], [2]), floats([1], [3]), general=strict)
    assert single.startswith("output 'y'[1,0] is 2, expected 3")


def test_empty_outputs_are_right():
    empty = np.zeros((0, 4), np.float32)
    assert why(empty, empty) == why(empty, empty, general=Tolerance(top1=1.0)) == ""
