"""Correlation ids: which sequence a request belongs to, as one word."""

from typing import Any

from serve.wire import documents


def sequence_of(json_head: bytes, *, is_flat: bool = False) -> str:
    """The correlation id in the JSON head of a predict request; empty when there is none.

    It is a parameter, and in a flat request, as `generate` takes them, maybe a key beside the rest.
    A number and a string with the same digits are two ids, so the type is part of the result. JSON
    that cannot be read is left to Triton, whose answer says what is wrong with it. `TooMuchJson`.
    """
    try:
        head: Any = documents.read(json_head)
        if is_flat and "sequence_id" in head:
            return sequence_key(head["sequence_id"])
        identity = head["parameters"]["sequence_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return sequence_key(identity)


def sequence_key(identity: object) -> str:
    """One word for a correlation id: numbers and strings differ, and 0 and "" are none."""
    if not identity or isinstance(identity, bool) or not isinstance(identity, int | str):
        return ""
    return f"{'n' if isinstance(identity, int) else 's'}{identity}"
