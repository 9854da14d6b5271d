"""Sentences for people: what decisions, shapes and tests of chance say."""

from collections.abc import Sequence

_BY = {
    "number": "asked for by its number",
    "split": "drawn by the model's split",
    "latest": "the newest that is ready, as no split is set",
    "sequence": "where the sequence's state is",
}
_CHANCE = 0.05


def decision_text(by: str, asked: str) -> str:
    """Why this version has answered; `by` is of the decision header, `asked` the selector."""
    if by == "label":
        return f"label '{asked}' names it"
    return _BY.get(by, f"decided by {by}" if by else "nobody said why")


def shape_text(shape: Sequence[int]) -> str:
    """[any, 8, 8, 1]"""
    return f"[{', '.join('any' if length < 0 else str(length) for length in shape)}]"


def chance_text(only_a: int, only_b: int, p: float | None) -> str:
    """What McNemar's test says of the rows on which only one side is right."""
    if p is None:
        return "No row was answered by both."
    if only_a == only_b == 0:
        return "Both are right on the same rows."
    better, fewer, more, less = ("B", "A", only_b, only_a)
    if only_a > only_b:
        better, fewer, more, less = ("A", "B", only_a, only_b)
    judged = "unlikely to be chance" if p < _CHANCE else "may well be chance"
    rows = "row" if more == 1 else "rows"
    return (
        f"{better} is right on {more} {rows} where {fewer} is wrong, {fewer} on {less}: "
        f"{judged}, p {p_text(p)}."
    )


def p_text(p: float) -> str:
    """A chance with the digits that matter."""
    return "< 0.0001" if p < 0.0001 else f"= {p:.2g}"
