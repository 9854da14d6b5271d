"""gRPC calls whose metadata differs in every call: frames encoded beforehand, and played back.

h2load sends the same header block again and again, which a proxy may remember. Traced clients send
a new `traceparent` in each call, and Go's encoder puts it into the dynamic table of HPACK (RFC
7541), so the table changes with every call. This generator does the same, with the encoder of the
`hpack` library and within the table size that the server has announced; the header blocks of a run
are ready before it begins, so the loop costs little. Every answer's `grpc-status` is looked at.
"""

import json
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from hpack import Decoder, Encoder

from loadtests.bench.clients import traceparent
from loadtests.bench.generators import GRPC_INFER, Load, quantile
from loadtests.bench.keys import CREDENTIAL
from loadtests.bench.payloads import grpc_message

ROOT = Path(__file__).resolve().parents[2]
CONNECTIONS = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8  # RFC 9113, 6
ACK = END_STREAM = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 32
TABLE_SIZE = 1  # the setting
WINDOW = 65535  # of a connection, until more is granted


@dataclass(slots=True)
class Replay:
    """`concurrency` streams over a few connections; the number of calls follows the rate seen."""

    size: int
    concurrency: int
    pin: tuple[str, ...] = ()
    _rates: dict[str, float] = field(default_factory=dict)

    def run(self, url: str, seconds: float) -> Load:
        """In a process of its own."""
        if url not in self._rates:
            probe = self._calls(url, self.concurrency * 32)
            self._rates[url] = probe.calls / probe.seconds
        load = self._calls(url, max(self.concurrency * 4, int(self._rates[url] * seconds)))
        self._rates[url] = load.calls / load.seconds
        return load

    def close(self) -> None:
        """Nothing stays between runs."""

    def _calls(self, url: str, count: int) -> Load:
        argv = (sys.executable, "-m", "loadtests.bench.replay", urlsplit(url).netloc)
        numbers = (str(self.size), str(self.concurrency), str(count))
        done = subprocess.run(
            [*self.pin, *argv, *numbers], stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=300
        )
        if done.returncode:
            raise RuntimeError(f"the replay to {url} failed")
        return Load(**json.loads(done.stdout))


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    return (
        struct.pack(">HBBBI", len(payload) >> 8, len(payload) & 255, kind, flags, stream) + payload
    )


class Connection:
    """One connection that plays `count` calls, `streams` at a time."""

    def __init__(self, address: tuple[str, int], message: bytes, count: int, streams: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.times: list[float] = []
        self.failed = 0
        self._message, self._count, self._streams = message, count, streams
        self._table = 4096  # bytes, until the server says otherwise
        self._begun: dict[int, float] = {}
        self._window = WINDOW
        self._input = bytearray()
        self._statuses: dict[bytes, bool] = {}
        self._blocks: list[bytes] = []
        self._next = 0

    @property
    def is_done(self) -> bool:
        """Whether every call has its answer."""
        return self._next == len(self._blocks) and not self._begun

    def prepare(self) -> None:
        """Exchange settings, then encode the frames of all calls."""
        settings = struct.pack(">HIHI", TABLE_SIZE, 0, 4, 1 << 30)  # no table, large windows
        grant = struct.pack(">I", (1 << 31) - 1 - WINDOW)
        hello = frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, grant)
        self.socket.sendall(PREFACE + hello)
        self.socket.settimeout(10)
        while not self._settled:
            self.receive()
        encoder, draw = Encoder(), random.Random()
        encoder.header_table_size = min(self._table, 4096)
        host, port = self.socket.getpeername()
        head = [
            (":method", "POST"), (":scheme", "http"), (":path", GRPC_INFER),
            (":authority", f"{host}:{port}"), ("content-type", "application/grpc"),
            ("user-agent", "replay"), ("te", "trailers"), CREDENTIAL,
        ]  # fmt: skip
        self._blocks = [
            encoder.encode([*head, ("traceparent", traceparent(draw))]) for _ in range(self._count)
        ]

    def play(self) -> None:
        """Send as many further calls as may be in flight."""
        pieces = []
        now = time.perf_counter()
        while (
            self._next < len(self._blocks)
            and len(self._begun) < self._streams
            and self._window >= len(self._message)
        ):
            stream = 2 * self._next + 1
            pieces.append(frame(HEADERS, END_HEADERS, stream, self._blocks[self._next]))
            pieces.append(frame(DATA, END_STREAM, stream, self._message))
            self._window -= len(self._message)
            self._begun[stream] = now
            self._next += 1
        if pieces:
            self.socket.sendall(b"".join(pieces))

    def receive(self) -> None:
        """Read once, and take every complete frame."""
        came = self.socket.recv(1 << 18)
        if not came:
            raise ConnectionError("the server closed the connection")
        self._input += came
        place = 0
        while len(self._input) - place >= 9:
            size = int.from_bytes(self._input[place : place + 3], "big")
            if len(self._input) - place < 9 + size:
                break
            kind, flags = self._input[place + 3], self._input[place + 4]
            stream = int.from_bytes(self._input[place + 5 : place + 9], "big") & 0x7FFFFFFF
            self._take(kind, flags, stream, bytes(self._input[place + 9 : place + 9 + size]))
            place += 9 + size
        del self._input[:place]

    _settled = False

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS and flags & END_STREAM:
            self._finish(stream, self._is_ok(flags, payload))
        elif kind == RESET:
            self._finish(stream, False)
        elif kind == WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(payload, "big")
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == SETTINGS and not flags & ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                self._table = value if name == TABLE_SIZE else self._table
            self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
            self._settled = True
        elif kind == GOAWAY:
            raise ConnectionError(f"the server sent GOAWAY: {payload!r}")

    def _finish(self, stream: int, good: bool) -> None:
        begun = self._begun.pop(stream)
        if good:
            self.times.append((time.perf_counter() - begun) * 1e6)
        else:
            self.failed += 1

    def _is_ok(self, flags: int, payload: bytes) -> bool:
        """Whether these trailers say grpc-status 0; without a table every block stands alone."""
        if flags & (PADDED | PRIORITY):
            payload = payload[(1 if flags & PADDED else 0) + (5 if flags & PRIORITY else 0) :]
        known = self._statuses.get(payload)
        if known is None:
            known = any(
                tuple(map(str, field)) == ("grpc-status", "0")
                for field in Decoder().decode(payload)
            )
            self._statuses[payload] = known
        return known


def play(connections: list[Connection]) -> float:
    """Play all of them to their end; how many seconds it took."""
    selector = selectors.DefaultSelector()
    for one in connections:
        selector.register(one.socket, selectors.EVENT_READ, one)
    begun = time.perf_counter()
    for one in connections:
        one.play()
    while not all(one.is_done for one in connections):
        ready = selector.select(timeout=30)
        if not ready:
            raise TimeoutError("no response for 30 s")
        for key, _ in ready:
            key.data.receive()
            key.data.play()
    return time.perf_counter() - begun


def main(address: str, size: int, concurrency: int, count: int) -> None:
    """Play `count` calls and print what came of them."""
    host, _, port = address.rpartition(":")
    number = min(CONNECTIONS, concurrency)
    share, streams = -(-count // number), concurrency // number
    message = grpc_message(size)
    connections = [Connection((host, int(port)), message, share, streams) for _ in range(number)]
    for one in connections:
        one.prepare()
    seconds = play(connections)
    times = sorted(value for one in connections for value in one.times)
    if not times:
        raise SystemExit("no call was successful")
    page = {
        "calls": len(times),
        "seconds": seconds,
        "failed": sum(one.failed for one in connections),
        "p50": quantile(times, 0.5),
        "p99": quantile(times, 0.99),
    }
    print(json.dumps(page))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
