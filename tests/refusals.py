"""Calls that have to be refused, in loops over many of them."""

from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E", bound=Exception)


def refusal(kind: type[E], act: Callable[..., object], *given: Any, **options: Any) -> E:
    """The error of this kind that a call ends with; names the arguments where it is accepted."""
    try:
        act(*given, **options)
    except kind as error:
        return error
    raise AssertionError(f"not refused: {given} {options or ''}")
