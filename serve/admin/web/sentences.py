"""Sentences for people: what decisions, shapes and tests of chance say."""

from collections.abc import Sequence

_BY = {
    "number": "requested by version number",
    "split": "chosen by the traffic split",
    "match": "chosen by a match of the route",
    "sticky": "chosen by the traffic split for this caller",
    "fallback": "fallback version, as no replica has loaded the selected one",
    "latest": "newest ready version, as no traffic split is set",
    "sequence": "chosen by the traffic split for the whole sequence",
}
_CHANCE = 0.05


def decision_text(by: str, asked: str) -> str:
    """Why this version has answered; `by` is of the decision header, `asked` the selector."""
    if by == "label":
        return f"label '{asked}' points to it"
    return _BY.get(by, f"chosen by {by}" if by else "reason unknown")


def shape_text(shape: Sequence[int]) -> str:
    """[any, 8, 8, 1]"""
    return f"[{', '.join('any' if length < 0 else str(length) for length in shape)}]"


def chance_text(only_a: int, only_b: int, p: float | None) -> str:
    """What McNemar's test says of the rows on which only one side is right."""
    if p is None:
        return "No row has results from both versions."
    if only_a == only_b == 0:
        return "Both versions are right on the same rows."
    better, fewer, more, less = ("B", "A", only_b, only_a)
    if only_a > only_b:
        better, fewer, more, less = ("A", "B", only_a, only_b)
    judged = "is unlikely to be chance" if p < _CHANCE else "may be chance"
    return (
        f"{better} is right on {_rows(more)} where {fewer} is wrong, and {fewer} on {_rows(less)} "
        f"where {better} is wrong. The difference {judged} (McNemar's test, p {p_text(p)})."
    )


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def p_text(p: float) -> str:
    """A chance with the digits that matter."""
    return "< 0.0001" if p < 0.0001 else f"= {p:.2g}"
