"""What people who watch the Live page cost the control plane: 20 of them beside one.

One `servegate up` answers a steady load. Rounds of one viewer and of twenty follow one another, the
order changing from round to round; each viewer reads `/api/live/events` as a browser does. Counted
is the CPU time of the control plane's process in each round, by the kernel's books.

Prints a table and writes `loadtests/results/live-*.json`; the exit status is 1 when the median of
the ratios is above `--limit`.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench import machine
from loadtests.bench.results import FOLDER, today, write_page
from loadtests.bench.rounds import Ratio
from loadtests.bench.start import BIN, ROOT, free_ports, until_ready
from loadtests.bench.started import Programs

MANY = 20
RATE = 50  # calls per second, so that there is something to see
SETTLE = 2.0  # seconds after the viewers have come
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Watched:
    """One part of a round. `cpu` is CPU seconds per second; events and bytes are of all viewers."""

    viewers: int
    cpu: float
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Round:
    """One viewer and many, one after the other."""

    one: Watched
    many: Watched


@dataclass(frozen=True, slots=True)
class Results:
    """One run; `unwatched` is the CPU of the control plane before anybody watched."""

    date: str
    machine: str
    seconds: float
    unwatched: float
    rounds: tuple[Round, ...]

    @property
    def ratio(self) -> Ratio:
        """Of the control plane's CPU with many viewers to that with one."""
        found = [one.many.cpu / one.one.cpu for one in self.rounds]
        return Ratio(statistics.median(found), min(found), max(found))

    def table(self) -> str:
        """What the terminal gets."""
        lines = [f"{'viewers':>8}{'CPU of a core':>15}{'events':>8}{'kB':>8}"]
        lines.append(f"{0:8}{self.unwatched:15.2%}")
        for each in self.rounds:
            for part in (each.one, each.many):
                size = part.bytes / 1000
                lines.append(f"{part.viewers:8}{part.cpu:15.2%}{part.events:8}{size:8.0f}")
        ratio = self.ratio
        lines.append(f"ratio {ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})")
        return "\n".join(lines)


@contextlib.contextmanager
def viewers(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that read the stream."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            one.sendall(b"GET /api/live/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            found.append(one)
        yield found


def read(connections: list[socket.socket], seconds: float) -> tuple[int, int]:
    """What they are sent in this time: events and bytes."""
    events = size = 0
    with selectors.DefaultSelector() as selector:
        for one in connections:
            one.setblocking(False)
            selector.register(one, selectors.EVENT_READ)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                piece = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                if not piece:
                    raise RuntimeError("the stream has ended")
                events += piece.count(b"data: ")
                size += len(piece)
    return events, size


def control_cpu(state: Path) -> float:
    """CPU seconds of the control plane's process so far."""
    page = json.loads((state / "children.json").read_text())
    (pid,) = (entry["pid"] for entry in page["children"] if entry["name"] == "control")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def watched(state: Path, port: int, count: int, seconds: float) -> Watched:
    """One part of a round."""
    with viewers(port, count) as connections:
        read(connections, SETTLE)
        before, begun = control_cpu(state), time.monotonic()
        events, size = read(connections, seconds)
        used, took = control_cpu(state) - before, time.monotonic() - begun
    if events < 0.8 * count * seconds:
        raise RuntimeError(f"{count} viewers got {events} events in {seconds:.0f} s")
    return Watched(count, used / took, events, size)


def one_round(state: Path, port: int, seconds: float, *, is_first: bool) -> Round:
    """One viewer and then many, or the other way round."""
    counts = (1, MANY) if is_first else (MANY, 1)
    found = {count: watched(state, port, count, seconds) for count in counts}
    return Round(found[1], found[MANY])


def measure(folder: Path, rounds: int, seconds: float) -> Results:
    """All rounds against one gateway under a steady load."""
    http, grpc, metrics, admin = free_ports(4)
    state = folder / "state"
    servegate = str(BIN / "servegate")
    with Programs(folder) as programs:
        up = (
            *(servegate, "up", "--state", str(state), "--model-repo", str(ROOT / "model_repo")),
            *("--http-port", str(http), "--grpc-port", str(grpc)),
            *("--metrics-port", str(metrics), "--admin-port", str(admin)),
        )
        programs.start("gateway", up)
        until_ready(f"http://127.0.0.1:{admin}/readyz", time.monotonic())
        until_ready(f"http://127.0.0.1:{http}/v2/models/digits/ready", time.monotonic())
        length = 2 * rounds * (seconds + SETTLE) + seconds + 60
        load = (
            *(servegate, "load", "run", "--url", f"http://127.0.0.1:{http}", "--model", "digits"),
            *("--admin-url", f"http://127.0.0.1:{admin}", "--rate", str(RATE)),
            *("--for", f"{length:.0f}s", "--out", str(folder / "reports")),
        )
        programs.start("load", load)
        time.sleep(5)
        before = control_cpu(state)
        time.sleep(seconds)
        unwatched = (control_cpu(state) - before) / seconds
        found = tuple(
            one_round(state, admin, seconds, is_first=number % 2 == 0) for number in range(rounds)
        )
    return Results(today(), machine.describe(), seconds, unwatched, found)


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="duration of each part of a round, in seconds"
    )
    parser.add_argument("--limit", type=float, default=3.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        results = measure(Path(folder), chosen.rounds, chosen.seconds)
    print(results.table())
    path = FOLDER / f"live-{time.strftime('%Y%m%d-%H%M%S')}.json"
    ratio = dataclasses.asdict(results.ratio)
    write_page(path, dataclasses.asdict(results) | {"ratio": ratio, "limit": chosen.limit})
    print(f"written: {path}")
    return 0 if results.ratio.median <= chosen.limit else 1


if __name__ == "__main__":
    sys.exit(main())
