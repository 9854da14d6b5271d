"""Texts of others, as they are shown: control characters are spelled out.

A name, an author or a reason may hold what a terminal obeys (escape sequences move the cursor, set
the title, fill the clipboard) or what makes a line read in another order than it is written. Line
breaks and tabs stay.

And the durations that people write.
"""

import re
from typing import Any

from serve.core.errors import Invalid

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


def printable(text: str) -> str:
    """The text with every control character as `\\x1b` or `\\u202e`."""
    return text if text.isprintable() else _CONTROLS.sub(_spelled, text)


def all_printable(value: Any) -> Any:
    """A JSON value of which every text is printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [all_printable(one) for one in value]
    if isinstance(value, dict):
        return {printable(name): all_printable(one) for name, one in value.items()}
    return value


def parse_seconds(text: str) -> float:
    """'500ms', '60s', '5m', '2h', or '90' seconds; 0 and more."""
    found = re.fullmatch(r"([0-9]*\.?[0-9]+|[0-9]+\.)(ms|s|m|h)?", text.strip())
    if found is None:
        raise Invalid(
            f"{text!r} is not a duration",
            why="a duration is a number with the unit ms, s, m or h (default: s)",
            try_this="60s",
        )
    return float(found[1]) * {"ms": 0.001, "m": 60.0, "h": 3600.0}.get(found[2], 1.0)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
