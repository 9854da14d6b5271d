"""JSON that is read on the event loop: not too much of it, for all other calls wait meanwhile."""

import json
from typing import Any

from serve.core.errors import TooMuchJson

MOST_VALUES = 1 << 17  # lists are the slowest: 30 ms of them
MOST_BYTES = 8 << 20  # of texts, which are the fastest


def read(text: bytes) -> Any:
    """The value that the JSON says. `TooMuchJson`, or a `ValueError` or `RecursionError`."""
    if len(text) > MOST_BYTES or _values(text) > MOST_VALUES:
        raise TooMuchJson(MOST_VALUES, MOST_BYTES)
    return json.loads(text)


def _values(text: bytes) -> int:
    """How many values there are, or more: what stands in texts is counted, too."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")
