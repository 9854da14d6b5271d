"""Preprocessing in words, sentences for people, and shares of calls."""

from serve.admin.web.preprocessing_text import in_words
from serve.admin.web.sentences import chance_text, decision_text, p_text, shape_text
from serve.admin.web.shares import VersionShare, shares


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
