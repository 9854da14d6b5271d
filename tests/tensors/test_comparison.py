"""How much two answers differ, and the highest scores of one."""

import math

import numpy as np
import pytest

from serve.core.errors import Invalid
from serve.tensors.comparison import Score, compare, difference, top_k


def array(*values, dtype=np.float32):
    return np.array(values, dtype=dtype)


def test_equal_answers_and_empty_ones_do_not_differ():
    found = compare({"y": array([1, 2], [3, 4])}, {"y": array([1, 2], [3, 4])})["y"]
    assert (found.equal, found.max_abs, found.max_rel, found.top_1) == (1.0, 0.0, 0.0, 1.0)
    assert math.isclose(found.cosine, 1.0)
    found = difference(np.zeros((0, 3)), np.zeros((0, 3)))
    assert (found.equal, found.max_abs, found.cosine, found.top_1) == (1.0, 0.0, 1.0, 1.0)


def test_the_largest_difference_is_told_absolutely_and_relatively():
    found = difference(array(1, 100), array(1.5, 101))
    assert found.max_abs == 1.0
    assert math.isclose(found.max_rel, 0.5 / 1.5)
    assert found.equal == 0.0


def test_top_1_is_the_share_of_rows_with_the_same_winner():
    found = difference(array([0.1, 0.9], [0.6, 0.4]), array([0.2, 0.8], [0.4, 0.6]))
    assert found.top_1 == 0.5
    assert difference(array(1, 2), array(2, 1)).top_1 is None
    assert difference(array([1], [2]), array([1], [3])).top_1 is None


def test_the_cosine_is_that_of_the_angle() -> None:
    for left, right, cosine in (
        ((1, 0), (0, 1), 0.0),
        ((1, 2), (-1, -2), -1.0),
        ((0, 0), (0, 0), 1.0),
        ((0, 0), (0, 1), 0.0),
        ((1e200, 1e200), (1e-200, 1e-200), 1.0),
    ):
        found = difference(array(*left, dtype=np.float64), array(*right, dtype=np.float64))
        assert math.isclose(found.cosine, cosine, abs_tol=1e-12), (left, right)


def test_nan_on_both_sides_is_the_same_value_and_on_one_side_an_infinite_difference():
    both = difference(array(math.nan, math.inf, 1), array(math.nan, math.inf, 1))
    assert (both.equal, both.max_abs, both.max_rel) == (1.0, 0.0, 0.0)
    assert math.isnan(both.cosine)
    for other in (array(1), array(math.inf)):
        assert difference(array(math.nan), other).max_abs == math.inf
    assert difference(array(math.inf), array(-math.inf)).max_abs == math.inf


def test_integers_of_any_width_and_booleans_are_compared_as_numbers_and_texts_for_equality():
    found = difference(array(0, 255, dtype=np.uint8), array(1, 255, dtype=np.uint8))
    assert (found.max_abs, found.equal) == (1.0, 0.5)
    assert difference(array(True, dtype=bool), array(False, dtype=bool)).max_abs == 1.0
    found = difference(array(b"a", b"b", dtype=object), array(b"a", b"c", dtype=object))
    assert (found.equal, found.max_abs, found.top_1) == (0.5, None, None)


def test_answers_that_cannot_be_compared_say_why():
    with pytest.raises(Invalid, match="only one has b"):
        compare({"a": array(1)}, {"a": array(1), "b": array(1)})
    with pytest.raises(Invalid, match=r"output 'y'.*\[2\].*\[3\]"):
        compare({"y": array(1, 2)}, {"y": array(1, 2, 3)})
    with pytest.raises(Invalid, match="float32"):
        difference(array(1), array(b"1", dtype=object))


def test_top_k_gives_the_highest_first_with_their_labels():
    assert top_k(array(0.25, 0.5, 0.125), 2, ("cat", "dog")) == [
        Score(1, "dog", 0.5),
        Score(0, "cat", 0.25),
    ]
    assert [score.label for score in top_k(array(1, 2, 3), 9, ("cat",))] == ["", "", "cat"]


def test_of_equal_scores_the_lower_index_comes_first_and_nan_last():
    assert [score.index for score in top_k(array(1, 2, 2, math.nan, 3), 5)] == [4, 1, 2, 0, 3]
    parity = np.arange(1000) % 2
    expected = [*range(1, 1000, 2), *range(0, 1000, 2)]
    assert [score.index for score in top_k(parity, 1000)] == expected
    unsigned = array(0, 3, 1, dtype=np.uint8)
    assert [score.index for score in top_k(unsigned, 3)] == [1, 2, 0]
