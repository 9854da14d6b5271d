"""One body of a gibibyte through each target: how long it takes, and what it costs in memory.

The upstream adds the body up (Adler-32), so a body that arrives changed is noticed. Memory is the
growth of the process tree's proportional set size, sampled while the body is on its way.
"""

import http.client
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from loadtests.bench import accounting
from loadtests.bench.generators import INFER
from loadtests.bench.keys import CREDENTIAL
from loadtests.bench.targets import Target
from loadtests.bench.verifying import Wrong

WHOLE = 1 << 30  # bytes
PIECE = bytes(range(256)) * 1024  # 256 KiB
SAMPLING = 0.02  # seconds between two looks at the memory
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Streamed:
    """One body; `growth` is the most memory above the rest, in MiB."""

    target: str
    direction: str  # "request" or "answer"
    seconds: float
    cpu: float | None  # seconds
    growth: float | None


@dataclass(slots=True)
class Watch:
    """Samples the memory of a process tree in a thread, inside of `with`."""

    pid: int
    rest: float = 0.0
    most: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watch":
        self.rest = self.most = self._now()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLING):
            self.most = max(self.most, self._now())

    def _now(self) -> float:
        found = accounting.tree(self.pid)
        return accounting.memory((*found.workers, *found.supervisors))


def stream(target: Target, direction: str, size: int = WHOLE) -> Streamed:
    """Send a body, or have one sent; raises Wrong when it does not arrive whole."""
    move = {"request": _send, "answer": _receive}[direction]
    move(target, len(PIECE) * 16)  # buffers that stay are no growth
    if target.pid is None:
        return Streamed(target.name, direction, _timed(move, target, size), None, None)
    before = accounting.cpu(target.pid)
    with Watch(target.pid) as watch:
        seconds = _timed(move, target, size)
    used = accounting.cpu(target.pid) - before
    return Streamed(target.name, direction, seconds, used.workers, watch.most - watch.rest)


def _timed(move: Callable[[Target, int], None], target: Target, size: int) -> float:
    begun = time.perf_counter()
    move(target, size)
    return time.perf_counter() - begun


def _send(target: Target, size: int) -> None:
    adler = 1
    for piece in _pieces(size):
        adler = zlib.adler32(piece, adler)
    fields = {"Content-Length": str(size), "check-body": "1", "Content-Type": "application/json"}
    answer, _ = _exchange(target, fields, _pieces(size))
    if (seen := answer.getheader("body-adler")) != f"{adler:08x}":
        raise Wrong(f"{target.name}: the checksum of the body is {seen}, not {adler:08x}")


def _receive(target: Target, size: int) -> None:
    fields = {"answer-bytes": str(size), "Content-Length": "2", "Content-Type": "application/json"}
    _, came = _exchange(target, fields, iter([b"{}"]))
    if came != size:
        raise Wrong(f"{target.name}: {came} of {size} bytes arrived")


def _exchange(
    target: Target, fields: dict[str, str], body: Iterator[bytes]
) -> tuple[http.client.HTTPResponse, int]:
    connection = http.client.HTTPConnection(urlsplit(target.http).netloc, timeout=PATIENCE)
    connection.request("POST", INFER, body, {**fields, **dict((CREDENTIAL,))})
    answer = connection.getresponse()
    came = 0
    room = bytearray(1 << 18)
    while read := answer.readinto(room):
        came += read
    connection.close()
    if answer.status != 200:
        raise Wrong(f"{target.name}: HTTP {answer.status}")
    return answer, came


def _pieces(size: int) -> Iterator[bytes]:
    for left in range(size, 0, -len(PIECE)):
        yield PIECE[:left]
