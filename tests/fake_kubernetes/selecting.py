"""Label and field selectors, as lists and watches take them."""

import re
from collections.abc import Callable
from typing import Any

from fake_kubernetes.refusals import Refusal

Object = dict[str, Any]
Test = Callable[[Object], bool]

_IN = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)")
_EQUAL = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)")
_FIELDS = ("metadata.name", "metadata.namespace")


def selection(labels: str, fields: str) -> Test:
    """Whether an object is among those that were asked for."""
    tests = [*map(_label_test, _terms(labels)), *map(_field_test, _terms(fields))]
    return lambda each: all(test(each) for test in tests)


def _terms(text: str) -> list[str]:
    """Split at commas that are in no parentheses."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip()]


def _label_test(term: str) -> Test:
    if found := _IN.fullmatch(term):
        name, word, listed = found.groups()
        values = [value.strip() for value in listed.split(",")]
        return lambda each: (_labels(each).get(name) in values) == (word == "in")
    if found := _EQUAL.fullmatch(term):
        name, sign, value = found.groups()
        return lambda each: (_labels(each).get(name) == value) == (sign != "!=")
    if re.fullmatch(r"!?[\w./-]+", term):
        name = term.removeprefix("!")
        return lambda each: (name in _labels(each)) == (term == name)
    raise Refusal(400, f"unable to parse requirement: {term!r}")


def _field_test(term: str) -> Test:
    found = _EQUAL.fullmatch(term)
    if found is None:
        raise Refusal(400, f"invalid selector: {term!r}; can't understand it")
    name, sign, value = found.groups()
    if name not in _FIELDS:
        raise Refusal(400, f"field label not supported: {name}")
    key = name.removeprefix("metadata.")
    return lambda each: (each["metadata"].get(key, "") == value) == (sign != "!=")


def _labels(each: Object) -> dict[str, str]:
    return each["metadata"].get("labels") or {}
