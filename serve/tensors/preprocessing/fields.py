"""The fields of `preprocessing.json`, each read as what it has to be; `where` is their path."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.preprocessing.steps import MAX_PIXELS


def wrong(what: str, why: str) -> Invalid:
    """The error for one field."""
    return Invalid(
        f"the recorded preprocessing is wrong: {what}",
        why=why,
        try_this="correct the model's preprocessing.json",
    )


def require_known(where: str, row: Mapping[str, Any], known: Set[str]) -> None:
    """Refuse a key that means nothing: it may be a slip of one that does."""
    unknown = sorted(str(key) for key in set(row) - known)
    if unknown:
        raise wrong(
            f"unknown key '{where}.{unknown[0]}'", f"the keys are {', '.join(sorted(known))}"
        )


def word(where: str, row: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    """One of these words, which must be there."""
    value = row.get(key)
    if not isinstance(value, str) or value not in allowed:
        said = f"is {value!r}" if key in row else "is missing"
        raise wrong(f"'{where}.{key}' {said}", f"the values are {', '.join(allowed)}")
    return value


def choice(where: str, row: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    """One of these words, or empty where there is none."""
    return word(where, row, key, allowed) if row.get(key) is not None else ""


def truth(where: str, row: Mapping[str, Any], key: str) -> bool:
    """True or false; false where it is missing."""
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise wrong(f"'{where}.{key}' is {value!r}", "it must be true or false")
    return value


def length(
    where: str, row: Mapping[str, Any], key: str, *, least: int, most: int = MAX_PIXELS
) -> int:
    """A whole number between these."""
    value = row.get(key)
    if type(value) is not int or not least <= value <= most:
        said = f"is {value!r}" if key in row else "is missing"
        raise wrong(f"'{where}.{key}' {said}", f"it must be an integer from {least} to {most}")
    return value


def size(where: str, row: Mapping[str, Any], key: str) -> tuple[int, int] | None:
    """[height, width], or None where it is missing."""
    value = row.get(key)
    if value is None:
        return None
    if (
        not isinstance(value, list | tuple)
        or len(value) != 2
        or not all(type(side) is int and side > 0 for side in value)
        or value[0] * value[1] > MAX_PIXELS
    ):
        raise wrong(f"'{where}.{key}' is {value!r}", "it must be [height, width] in pixels")
    return value[0], value[1]


def floats(
    where: str, row: Mapping[str, Any], key: str, default: tuple[float, ...]
) -> tuple[float, ...]:
    """A list of numbers."""
    if key not in row:
        return default
    value = row[key]
    if not isinstance(value, list | tuple) or not all(is_number(each) for each in value):
        raise wrong(f"'{where}.{key}' is {value!r}", "it must be a list of numbers")
    return tuple(float(each) for each in value)


def is_number(value: object) -> bool:
    """Whether a float32 holds it without being rounded to 0 or infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    limits = np.finfo(np.float32)
    return value == 0 or float(limits.tiny) <= abs(value) <= float(limits.max)
