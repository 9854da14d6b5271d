"""Preprocessing in words, and shares of calls."""

import pytest

from serve.listeners.web.shares import Share, shares
from serve.listeners.web.words import in_words


def test_a_pictures_steps_are_told_in_their_order() -> None:
    steps = {
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
    assert in_words({"inputs": {"x": steps}})["x"] == [
        "A picture is read",
        "as red, green, blue",
        "made 256 pixels long on the shortest side with the filter bilinear",
        "224 × 224 pixels cut out of the middle",
        "pixels times 1 / 255",
        "minus the mean 0.5, 0.4, divided by 0.2, 0.1",
        "laid out as channels, height, width",
        "as FP32",
    ]


def test_a_texts_steps_are_told_in_their_order() -> None:
    steps = {"kind": "text", "as": "utf8", "length": 16, "pad": 1, "lower": True, "dtype": "INT32"}
    assert in_words({"inputs": {"t": steps}})["t"] == [
        "A text is read",
        "in lower case",
        "as a number for each byte of UTF-8",
        "cut to 16 numbers, or filled up with 1",
        "as INT32",
    ]


def test_steps_that_change_nothing_are_not_told_and_strange_ones_are() -> None:
    steps = {"kind": "image", "mean": [0.0], "std": [1.0], "whirl": 3}
    assert in_words({"inputs": {"x": steps}})["x"] == ["A picture is read", "whirl: 3"]


@pytest.mark.parametrize("document", [{}, {"inputs": None}, {"inputs": {}}, {"inputs": {"x": 3}}])
def test_what_is_no_preprocessing_has_no_words(document: dict[str, object]) -> None:
    assert in_words(document) == {}


def test_shares_lie_beside_each_other_and_fill_the_whole() -> None:
    assert shares({4: 25, 2: 75, 3: 0}) == (Share(2, 0.0, 0.75, 0), Share(4, 0.75, 0.25, 1))


def test_where_nothing_gets_calls_there_are_no_shares() -> None:
    assert shares({}) == () and shares({1: 0}) == ()
