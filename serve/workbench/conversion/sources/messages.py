"""Protobuf messages of strangers, read within a budget: so many fields, so many levels, no more.

A file of 2 GiB can hold a billion fields of two bytes, and messages within messages until the stack
of their reader ends; both are refused long before.
"""

from collections.abc import Iterator

from serve.core.errors import BadRequest
from serve.wire.protobuf import fields
from serve.workbench.conversion.faults import failed

MOST_FIELDS = 5_000_000  # half a minute at worst; a ResNet50 has 100,000
MOST_LEVELS = 100  # as protobuf's own readers allow


class Budget:
    """Counts what has been read; `source_corrupt` or `source_too_large` when it is too much."""

    def __init__(self, most: int = MOST_FIELDS) -> None:
        self._left = most

    def __repr__(self) -> str:
        return f"<Budget: {self._left} fields left>"

    def fields(self, message: bytes) -> Iterator[tuple[int, int | bytes]]:
        """The top-level fields of a message."""
        try:
            for each in fields(message):
                self._left -= 1
                if self._left < 0:
                    raise failed("source_too_large", "its graph has too many parts")
                yield each
        except BadRequest as error:
            raise failed(
                "source_corrupt", f"its graph is truncated or malformed: {error.why}"
            ) from error

    def check_depth(self, depth: int) -> None:
        """Refuse messages that lie too deep in others."""
        if depth > MOST_LEVELS:
            raise failed(
                "source_corrupt", f"its graph is nested more than {MOST_LEVELS} levels deep"
            )

    def entry(self, message: bytes) -> tuple[str, bytes]:
        """Key and value of a map's entry."""
        found = dict(self.fields(message))
        return text_of(found.get(1, b"")), message_of(found.get(2, b""))


def message_of(value: int | bytes) -> bytes:
    """A field that has to be a message; a number in its place is damage."""
    if isinstance(value, int):
        raise failed("source_corrupt", "its graph has a number in the place of a message")
    return value


def text_of(value: int | bytes) -> str:
    """A field that has to be text."""
    try:
        return message_of(value).decode()
    except UnicodeDecodeError as error:
        raise failed("source_corrupt", "its graph has a name that is not valid UTF-8") from error
