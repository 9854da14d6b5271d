"""HTTP/2 as the other sides of the gateway see it: they read with hpack, and count every window.

`Watch` reads what the gateway writes and raises where it breaks a rule of RFC 9113. What it may
send follows from what its peer has granted; a setting counts from the acknowledgement on.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import pack

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, MORE = range(10)
_WINDOW = 65_535
_LARGEST = (1 << 31) - 1
Frame = tuple[int, int, int, bytes]


def frames(data: bytes) -> tuple[list[Frame], bytes]:
    found = []
    while len(data) >= 9:
        end = 9 + int.from_bytes(data[:3], "big")
        if len(data) < end:
            break
        number = int.from_bytes(data[5:9], "big") & _LARGEST
        found.append((data[3], data[4], number, data[9:end]))
        data = data[end:]
    return found, data


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + pack(">I", stream) + payload


@dataclass(slots=True)
class Seen:
    """One stream, as far as the gateway has written it."""

    window: int
    heads: list[list[tuple[bytes, bytes]]] = field(default_factory=list)
    data: bytes = b""
    has_ended: bool = False
    was_reset: bool = False


class Watch:
    """Reads what the gateway writes to one peer."""

    def __init__(self) -> None:
        self.streams: dict[int, Seen] = {}
        self.last_goaway: tuple[int, int] | None = None  # last stream, code
        self.settings: list[dict[int, int]] = []  # that the gateway has sent
        self.owes_acknowledgement = 0
        self.pings: list[bytes] = []
        self._rest = b""
        self._window = _WINDOW
        self._initial = _WINDOW
        self._largest = 1 << 14
        self._said: deque[dict[int, int]] = deque()  # not acknowledged yet
        self._early: dict[int, int] = {}  # grants for streams that are not there yet
        self._block: tuple[int, int, bytes] | None = None
        self._decoder = hpack.Decoder(max_header_list_size=1 << 20)

    # --- what the peer has said to the gateway ----------------------------------------------------

    def grants(self, stream: int, increment: int) -> None:
        """A WINDOW_UPDATE of the peer's."""
        if not stream:
            self._window += increment
        elif stream in self.streams:
            self.streams[stream].window += increment
        else:
            self._early[stream] = self._early.get(stream, 0) + increment

    def says(self, values: dict[int, int]) -> None:
        """SETTINGS of the peer's."""
        self._said.append(values)

    # --- what the gateway writes ------------------------------------------------------------------

    def read(self, data: bytes) -> Iterator[tuple[int, Seen, str]]:
        """What has come: (stream, its state, `head`, `data` or `reset`)."""
        found, self._rest = frames(self._rest + data)
        for one in found:
            yield from self._frame(*one)

    def _frame(
        self, kind: int, flags: int, stream: int, payload: bytes
    ) -> Iterator[tuple[int, Seen, str]]:
        assert len(payload) <= self._largest, f"a frame of {len(payload)} bytes"
        assert (self._block is None) == (kind != MORE), "a header block that is interrupted"
        if kind == DATA:
            seen = self._open(stream)
            assert seen.heads, "DATA before a head"
            self._window -= len(payload)
            seen.window -= len(payload)
            assert not payload or (self._window >= 0 and seen.window >= 0), "beyond the window"
            seen.data += payload
            seen.has_ended = bool(flags & 1)
            yield stream, seen, "data"
        elif kind in (HEADERS, MORE):
            start = self._block or (stream, flags, b"")
            assert start[0] == stream
            self._block = (stream, start[1], start[2] + payload)
            if flags & 4:
                yield stream, self._head(*self._block), "head"
        elif kind == RST:
            seen = self.streams.setdefault(stream, Seen(0))
            seen.was_reset = True
            yield stream, seen, "reset"
        elif kind == SETTINGS:
            self._settings(flags, stream, payload)
        elif kind == PING:
            assert flags & 1 and len(payload) == 8, "a ping that nobody asked for"
            self.pings.append(payload)
        elif kind == GOAWAY:
            last, code = (int.from_bytes(payload[at : at + 4], "big") for at in (0, 4))
            assert self.last_goaway is None or last <= self.last_goaway[0]
            self.last_goaway = (last, code)
        else:
            assert kind == WINDOW, f"a frame of type {kind}"
            assert 0 < int.from_bytes(payload, "big") <= _LARGEST

    def _open(self, stream: int) -> Seen:
        assert stream & 1, f"stream {stream}"
        if stream not in self.streams:
            self.streams[stream] = Seen(self._initial + self._early.pop(stream, 0))
        seen = self.streams[stream]
        assert not seen.has_ended and not seen.was_reset, "more on a stream that is over"
        return seen

    def _head(self, stream: int, flags: int, block: bytes) -> Seen:
        self._block = None
        seen = self._open(stream)
        read = [(bytes(n), bytes(v)) for n, v in self._decoder.decode(block, raw=True)]
        pseudo = [name.startswith(b":") for name, _ in read]
        assert pseudo == sorted(pseudo, reverse=True), "a pseudo-header behind others"
        assert all(name == name.lower() for name, _ in read), read
        assert not [name for name, _ in read if name in (b"connection", b"transfer-encoding")]
        seen.heads.append(read)
        seen.has_ended = bool(flags & 1)
        return seen

    def _settings(self, flags: int, stream: int, payload: bytes) -> None:
        assert not stream
        if not flags & 1:
            self.owes_acknowledgement += 1
            pairs = (payload[at : at + 6] for at in range(0, len(payload), 6))
            self.settings.append(
                {int.from_bytes(p[:2], "big"): int.from_bytes(p[2:], "big") for p in pairs}
            )
            return
        values = self._said.popleft()
        self._largest = values.get(5, self._largest)
        if 4 in values:
            for seen in self.streams.values():
                seen.window += values[4] - self._initial
            self._initial = values[4]


class Grants:
    """Reads what a peer says to the gateway, and tells its `Watch` what it may send."""

    def __init__(self, watch: Watch, preface: bytes) -> None:
        self._watch = watch
        self._left = preface
        self._rest = b""

    def read(self, data: bytes) -> None:
        if self._left:
            self._left, data = self._left[len(data) :], data[len(self._left) :]
        found, self._rest = frames(self._rest + data)
        for kind, flags, stream, payload in found:
            if kind == WINDOW and len(payload) == 4:
                self._watch.grants(stream, int.from_bytes(payload, "big") & _LARGEST)
            elif kind == SETTINGS and not flags & 1 and not stream and len(payload) % 6 == 0:
                pairs = (payload[at : at + 6] for at in range(0, len(payload), 6))
                self._watch.says(
                    {int.from_bytes(p[:2], "big"): int.from_bytes(p[2:], "big") for p in pairs}
                )
