"""Restoring names: an answer says the model's own name and version where Triton knows it by others.

Versions whose configurations differ have physical names in Triton (`core.naming`). Triton writes
`"model_name":"…","model_version":"…"` near the start of its JSON, after the request's id; inside a
JSON string every quotation mark is escaped, so this sequence of bytes cannot occur in the id. It is
replaced where it stands, nothing is parsed. Error sentences name the model in single quotes. In a
stream of events each one is such an answer or such an error.
"""

import re
from collections.abc import Iterable

from serve.core.snapshot import VersionTarget

_VERSIONS = re.compile(rb'"versions":\[[^]]*\]')
SEARCHED = 64 << 10  # bytes of an answer that are held back while the names have not been found
_EVENT_END = b"\n\n"


def in_answer(start: bytes, target: VersionTarget) -> bytes | None:
    """The start of a JSON answer with the names restored; None when they are not in it (yet)."""
    name = b'"model_name":"%b","model_version":"' % target.physical_name.encode()
    there = start.find(name)
    if there < 0:
        return None
    after = start.find(b'"', there + len(name))
    if after < 0:
        return None
    number = start[there + len(name) : after]
    if number == str(target.physical_version).encode():
        number = str(target.version).encode()
    ours = b'"model_name":"%b","model_version":"%b' % (target.model.encode(), number)
    return start[:there] + ours + start[after:]


def in_error(sentence: bytes, target: VersionTarget) -> bytes:
    """An error sentence of Triton with the model's own name."""
    return sentence.replace(
        b"'%b'" % target.physical_name.encode(), b"'%b'" % target.model.encode()
    )


class RestoredEvents:
    """A stream of server-sent events, each with the names restored as soon as it is complete."""

    def __init__(self, target: VersionTarget) -> None:
        self._target = target
        self._start = b""  # of an event that is not complete

    def __repr__(self) -> str:
        return f"<RestoredEvents {self._target.model} held={len(self._start)}>"

    def restored(self, data: bytes) -> bytes:
        """What has become complete with these bytes; an event too long to be held goes on, too."""
        whole, end, start = (self._start + data).rpartition(_EVENT_END)
        if len(start) > SEARCHED:
            end, start = end + self._event(start), b""
        self._start = start
        events = whole.split(_EVENT_END) if whole else []
        return _EVENT_END.join(map(self._event, events)) + end

    def rest(self) -> bytes:
        """What was held when the stream has ended."""
        start, self._start = self._start, b""
        return start

    def _event(self, event: bytes) -> bytes:
        if event.startswith(b'data: {"error":'):
            return in_error(event, self._target)
        return in_answer(event, self._target) or event


def in_description(body: bytes, target: VersionTarget) -> bytes:
    """Metadata, configuration or statistics with the model's own name."""
    return body.replace(
        b'"name":"%b"' % target.physical_name.encode(), b'"name":"%b"' % target.model.encode()
    )


def with_versions(body: bytes, versions: Iterable[int]) -> bytes:
    """A model's metadata with these versions in the place of those that one replica holds."""
    listed = b",".join(b'"%d"' % version for version in versions)
    return _VERSIONS.sub(lambda _: b'"versions":[%b]' % listed, body, count=1)
