"""Sentences for people."""

import pytest

from serve.listeners.web.sentences import chance_text, decision_text, p_text, shape_text


@pytest.mark.parametrize(
    ("by", "asked", "said"),
    [
        ("label", "stable", "label 'stable' names it"),
        ("number", "3", "asked for by its number"),
        ("split", "", "drawn by the model's split"),
        ("mirror", "", "decided by mirror"),
        ("", "", "nobody said why"),
    ],
)
def test_why_a_version_answered_is_told(by: str, asked: str, said: str) -> None:
    assert decision_text(by, asked) == said


@pytest.mark.parametrize(
    ("only_a", "only_b", "p", "said"),
    [
        (4, 12, 0.077, "B is right on 12 rows where A is wrong, A on 4: may well be chance"),
        (12, 1, 0.0034, "A is right on 12 rows where B is wrong, B on 1: unlikely to be chance"),
        (1, 0, 1.0, "A is right on 1 row where B is wrong"),
        (3, 3, 1.0, "B is right on 3 rows where A is wrong, A on 3: may well be chance, p = 1."),
        (0, 0, 1.0, "Both are right on the same rows."),
        (0, 0, None, "No row was answered by both."),
    ],
)
def test_mcnemars_test_is_told_in_words(
    only_a: int, only_b: int, p: float | None, said: str
) -> None:
    assert said in chance_text(only_a, only_b, p)


@pytest.mark.parametrize(
    ("p", "said"), [(0.03, "= 0.03"), (0.0001, "= 0.0001"), (1e-9, "< 0.0001")]
)
def test_a_chance_has_the_digits_that_matter(p: float, said: str) -> None:
    assert p_text(p) == said


def test_a_free_length_is_called_any() -> None:
    assert shape_text((-1, 8, 8)) == "[any, 8, 8]"
