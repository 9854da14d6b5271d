"""Heads that are known: what llhttp has read once need not be read again.

The same bytes mean the same. Two heads that differ only in values that a gateway does not read
(the identity of a trace, say) mean the same but for these: a `Pattern` has holes where they stand.
A request id is passed on, too, and besides it names the call. A credential is no value of this
kind: every key has heads and patterns of its own.

    POST /v2/models/m/infer HTTP/1.1⏎ Host: x⏎ Traceparent: [!-~]{1,55}⏎ Content-Length: 159⏎ ⏎

A hole takes no more characters than were seen, visible ones alone, in a header that means nothing
to a parser of HTTP: llhttp reads over such a value, and it ends where the hole does.
"""

import re
from dataclasses import dataclass

from serve.wire.kserve_http import InferHead, KServeQuestion, is_claim, means_nothing
from serve.wire.request_ids import GIVEN, usable

_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([!-~]{1,200})")


@dataclass(frozen=True, slots=True)
class KnownHead:
    """The head of a predict request that llhttp has read, under the bytes that it was read from."""

    asked: KServeQuestion
    headers: list[tuple[bytes, bytes]]
    head: InferHead


class Pattern:
    """A known head with holes. `source` is the regular expression, and identifies it."""

    __slots__ = ("_expression", "_holes", "_identity", "_lines", "known", "source")

    def __init__(self, source: bytes, known: KnownHead, holes: list[int]) -> None:
        self.source = source
        self.known = known
        self._expression = re.compile(source)
        self._holes = holes  # indices of headers
        names = [known.headers[hole][0] for hole in holes]
        self._identity = names.index(GIVEN) if GIVEN in names else None  # the hole that names it
        self._lines = _template(known, holes)

    def __repr__(self) -> str:
        names = [self.known.headers[hole][0].decode() for hole in self._holes]
        return f"<Pattern {self.known.asked.model} varying={names}>"

    def read(self, start: bytes) -> tuple[list[tuple[bytes, bytes]], bytes, bytes] | None:
        """Headers, the lines that are passed on, and the request id; None for any other head."""
        match = self._expression.fullmatch(start)
        if match is None:
            return None
        values = match.groups()
        headers = self.known.headers.copy()
        for hole, value in zip(self._holes, values, strict=True):
            headers[hole] = (headers[hole][0], value)
        named = self._identity
        identity = self.known.head.request_id if named is None else usable(values[named])
        return headers, self._lines % values, identity


def pattern_of(before: bytes, start: bytes, known: KnownHead) -> Pattern | None:
    """What two heads have in common, of which the second has been read; None if that is too little.

    A head with Connection has no pattern, for it may name any header as one of its hop; nor has one
    with two request ids.
    """
    lines, others = start.split(b"\r\n"), before.split(b"\r\n")
    names = [name for name, _ in known.headers]
    if len(lines) != len(others) or len(lines) != len(names) + 3:
        return None
    if b"connection" in names or names.count(GIVEN) > 1:
        return None
    source, holes = [], []
    for number, (line, other) in enumerate(zip(lines, others, strict=True)):
        if line == other:
            source.append(re.escape(line))
            continue
        ours, theirs = _FIELD.fullmatch(line), _FIELD.fullmatch(other)
        if ours is None or theirs is None or not 0 < number <= len(names):
            return None
        name = names[number - 1]
        if ours[1] != theirs[1] or ours[1].lower() != name or not means_nothing(name):
            return None
        longest = max(len(ours[2]), len(theirs[2]))
        source.append(re.escape(line[: ours.start(2)]) + b"([!-~]{1,%d})" % longest)
        holes.append(number - 1)
    return Pattern(b"\r\n".join(source), known, holes) if holes else None


def _template(known: KnownHead, holes: list[int]) -> bytes:
    """The lines that go on, with `%b` in each hole, and `%.0b` for a hole that stays behind."""
    lines, position, parts = b"\r\n" + known.head.lines, 0, []
    begun = 2
    for number, (name, value) in enumerate(known.headers):
        if is_claim(name):
            if number in holes:
                parts.append(b"%.0b")
        elif means_nothing(name):
            position = lines.index(b"\r\n%b: %b\r\n" % (name, value), position) + len(name) + 4
            if number in holes:
                parts += (lines[begun:position].replace(b"%", b"%%"), b"%b")
                begun = position + len(value)
            position += len(value)
    return b"".join((*parts, lines[begun:].replace(b"%", b"%%")))
