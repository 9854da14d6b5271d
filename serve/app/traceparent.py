"""`traceparent`: the trace that a call belongs to; see W3C Trace Context, 3.2."""

import re
from dataclasses import dataclass

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = 1  # the lowest bit of the flags
_ABSENT = {"0" * 32, "0" * 16}


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span, in hexadecimal digits; `is_sampled` says whether the caller records it."""

    trace: str
    span: str
    is_sampled: bool


def parent_of(traceparent: str) -> Parent | None:
    """What the header says; None when it says nothing that can be used."""
    match = _FORM.fullmatch(traceparent.strip())
    if match is None or match[1] in _ABSENT or match[2] in _ABSENT:
        return None
    if traceparent.strip().startswith("00-") and match.end(3) != match.end():
        return None  # version 00 ends there; later ones may say more
    return Parent(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))
