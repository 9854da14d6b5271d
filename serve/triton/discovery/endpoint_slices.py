"""Watching: what is known of all EndpointSlices, from a list and the events after it.

    list ──▶ version 41, all slices ──▶ watch from 41 ──▶ event 42 ──▶ event 43 ──▶ the watch ends
      ▲                                      ▲                                           │
      │                                      └────────── watch from 43 ──────────────────┘
      └── 410: nobody remembers 43 any more, or the watch is refused for another reason

Nothing here does any input or output (`kubernetes.py` does). Source of the rules:
kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes".
"""

from collections.abc import Iterable, Mapping
from typing import Any

from serve.triton.discovery.endpoints import Listing, read

_LEAST, _MOST = 0.25, 10.0  # seconds


def pause(tries: int, draw: float) -> float:
    """Seconds until the next attempt, after so many that went wrong; `draw` from 0 to 1."""
    return min(_MOST, _LEAST * 2.0 ** min(tries, 10)) * (0.5 + draw / 2)


class Slices:
    """The slices by name, the newest last. `version` is where a watch goes on; empty: list first.

    What it holds stays until a whole new list has come.
    """

    def __init__(self) -> None:
        self.version = ""
        self._slices: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Slices {len(self._slices)} version={self.version or None}>"

    @property
    def listing(self) -> Listing:
        """What they say together."""
        return read(self._slices.values())

    def begin(self, items: Iterable[Any], version: str) -> None:
        """This is the whole list, as of a version."""
        slices = sorted(items, key=_age)
        self._slices = {str(one["metadata"]["name"]): one for one in slices}
        self.version = version

    def forget(self) -> None:
        """The next thing to do is to list anew."""
        self.version = ""

    def apply(self, kind: str, found: Mapping[str, Any]) -> bool:
        """Something has happened to a slice; whether it was more than that time has passed."""
        metadata = found["metadata"]
        self.version = str(metadata["resourceVersion"])
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            return False  # a BOOKMARK, or what nobody knows yet
        self._slices.pop(str(metadata["name"]), None)
        if kind != "DELETED":
            self._slices[str(metadata["name"])] = found
        return True


def _age(one: Any) -> int:
    """Versions are compared as whole numbers, which Kubernetes promises since 1.35."""
    version = str(one["metadata"].get("resourceVersion") or "")
    return int(version) if version.isascii() and version.isdigit() else 0


class LineBuffer:
    """Puts lines together from the pieces in which they come; half a line comes again later."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that are whole by now; `ValueError` for one that is longer than it may be."""
        self._rest += piece
        if b"\n" not in piece:
            whole: list[bytes] = []
        else:
            *parts, rest = self._rest.split(b"\n")
            whole = [bytes(one) for one in parts if one.strip()]
            self._rest = bytearray(rest)
        if max(map(len, (*whole, self._rest))) > self._longest:
            raise ValueError(f"a line of more than {self._longest} bytes")
        return whole
