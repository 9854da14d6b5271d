"""Preprocessing in words, sentences for people, and shares of calls."""

from serve.listeners.web.sentences import chance_text, decision_text, p_text, shape_text
from serve.listeners.web.shares import Share, shares
from serve.listeners.web.words import in_words


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
            "A picture is read",
            "as red, green, blue",
            "made 256 pixels long on the shortest side with the filter bilinear",
            "224 × 224 pixels cut out of the middle",
            "pixels times 1 / 255",
            "minus the mean 0.5, 0.4, divided by 0.2, 0.1",
            "laid out as channels, height, width",
            "as FP32",
        ],
        "t": [
            "A text is read",
            "in lower case",
            "as a number for each byte of UTF-8",
            "cut to 16 numbers, or filled up with 1",
            "as INT32",
        ],
        "s": ["A picture is read", "whirl: 3"],
    }
    for document in ({}, {"inputs": None}, {"inputs": {}}, {"inputs": {"x": 3}}):
        assert in_words(document) == {}


def test_shares_lie_beside_each_other_and_fill_the_whole() -> None:
    assert shares({4: 25, 2: 75, 3: 0}) == (Share(2, 0.0, 0.75, 0), Share(4, 0.75, 0.25, 1))
    assert shares({}) == shares({1: 0}) == ()


def test_why_a_version_answered_is_told() -> None:
    for by, asked, said in (
        ("label", "stable", "label 'stable' names it"),
        ("number", "3", "asked for by its number"),
        ("split", "", "drawn by the model's split"),
        ("mirror", "", "decided by mirror"),
        ("", "", "nobody said why"),
    ):
        assert decision_text(by, asked) == said


def test_mcnemars_test_is_told_in_words() -> None:
    for only_a, only_b, p, said in (
        (4, 12, 0.077, "B is right on 12 rows where A is wrong, A on 4: may well be chance"),
        (12, 1, 0.0034, "A is right on 12 rows where B is wrong, B on 1: unlikely to be chance"),
        (1, 0, 1.0, "A is right on 1 row where B is wrong"),
        (3, 3, 1.0, "B is right on 3 rows where A is wrong, A on 3: may well be chance, p = 1."),
        (0, 0, 1.0, "Both are right on the same rows."),
        (0, 0, None, "No row was answered by both."),
    ):
        assert said in chance_text(only_a, only_b, p)
    assert [p_text(p) for p in (0.03, 0.0001, 1e-9)] == ["= 0.03", "= 0.0001", "< 0.0001"]
    assert shape_text((-1, 8, 8)) == "[any, 8, 8]", "a free length is called any"
