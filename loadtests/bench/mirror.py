"""What callers notice of mirrored calls, and what the copies cost.

    python -m loadtests.bench.mirror

1. CPU time per call with 10 % of the calls mirrored, compared with none, over HTTP and gRPC, to
   upstreams that do nothing; the process that compares responses included. Two gateways,
   interleaved as in `against_checkout`.
2. Latency of callers while 10 % of the calls are mirrored to a candidate that works, or is 100
   times slower than the model, compared with no mirror in the same round; and at the end while it
   is stopped (SIGSTOP), and after it was killed. Two real Tritons with a Python model, whose
   processes are stopped and killed; Triton 2.51 may abort then, and callers' calls fail.

Prints tables and writes `loadtests/results/mirror-*.json`. Exit status 1 when a call failed.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.error
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.bench import machine, payloads
from loadtests.bench.against_checkout import NEW, OLD, Compared, compare, line
from loadtests.bench.gateway import set_route, start_gateway
from loadtests.bench.generators import Load, Wrk
from loadtests.bench.results import FOLDER
from loadtests.bench.rows import choose
from loadtests.bench.start import BIN, free_ports, until_ready
from loadtests.bench.started import PATIENCE, Programs
from loadtests.bench.upstreams import start_cheap, start_tritons

PERCENT = 10
ROWS = ("http-64B", "grpc-64B-cheap")
TIMES = 0.001, 0.1  # seconds that an execution takes: of the model, and of a slow candidate
OFF, WORKS, SLOW, STOPPED, KILLED = "no mirror", "works", "100 × slower", "stopped", "killed"
CANDIDATES = {WORKS: 2, SLOW: 3}  # versions
CONCURRENCY = 4
_CODE = """\
import time
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        time.sleep({seconds} * len(requests))
        inputs = [pb.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        return [pb.InferenceResponse([pb.Tensor("y", one)]) for one in inputs]
"""
_CONFIG = """\
backend: "python"
max_batch_size: 0
version_policy { all {} }
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1, -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1, -1 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""


@dataclass(frozen=True, slots=True)
class Noticed:
    """Callers in one state of the candidate; ratios to the same round without a mirror."""

    state: str
    p50: float  # microseconds, median of the rounds
    p99: float
    p50_ratio: float
    p99_ratio: float
    failed: int
    memory: float  # MiB of all workers, at the end of the last round


def cost(seconds: float) -> list[Compared]:
    """CPU time per call with a mirror ÷ without."""
    cores = machine.cores()
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Programs(folder) as programs:
            tritons = start_tritons(programs, cores=cores, folder=folder)
            cheap = start_cheap(programs, tritons, cores=cores, folder=folder)
            sides = {
                side: start_gateway(programs, cheap, cores=cores, folder=folder, name=side)
                for side in (NEW, OLD)
            }
            set_route(sides[OLD].admin, "null", {"split": {1: 100}})
            mirror = {"version": 2, "percent": PERCENT, "code": True}
            set_route(sides[NEW].admin, "null", {"split": {1: 100}, "mirror": mirror})
            targets = [one.target for one in sides.values()]
            return [
                compare(row, targets, seconds=seconds, folder=folder, whole=True)
                for row in choose(ROWS, quick=False)
            ]


def noticed(rounds: int, seconds: float) -> list[Noticed]:
    """Callers' latency in every state; a killed candidate comes last, it stays dead."""
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as name:
        folder = Path(name)
        for version, duration in ((1, TIMES[0]), (2, TIMES[0]), (3, TIMES[1])):
            place = folder / "models" / "m" / str(version)
            place.mkdir(parents=True)
            (place / "model.py").write_text(_CODE.format(seconds=duration))
        (folder / "models" / "m" / "config.pbtxt").write_text(_CONFIG)
        http, grpc, metrics, admin = free_ports(4)
        words = (
            *(sys.executable, str(BIN / "servegate"), "up", "--state", str(folder / "state")),
            *("--model-repo", str(folder / "models"), "--replicas", "2", "--workers", "2"),
            *("--http-port", str(http), "--grpc-port", str(grpc)),
            *("--metrics-port", str(metrics), "--admin-port", str(admin)),
        )
        with Programs(folder) as programs:
            programs.start("up", words)
            for version in (1, 2, 3):
                path = f"/v2/models/m/versions/{version}/ready"
                until_ready(f"http://127.0.0.1:{http}{path}", time.monotonic())
            callers = Callers(f"http://127.0.0.1:{http}", f"http://127.0.0.1:{admin}", folder)
            loads = callers.rounds((OFF, WORKS, SLOW), rounds, seconds)
            callers.mirror_to(WORKS)
            with pausing(stubs(2)):
                loads |= callers.rounds((STOPPED,), rounds, seconds)
            callers.mirror_to(WORKS)
            for stub in stubs(2):
                os.kill(stub, signal.SIGKILL)
            loads |= callers.rounds((KILLED,), rounds, seconds)
            return [summarise(state, loads[state], loads[OFF]) for state in loads]


class Callers:
    """Drives the model in one state after the other."""

    def __init__(self, url: str, admin: str, folder: Path) -> None:
        self._url = url
        self._admin = admin
        payload = payloads.binary_tensor(64)
        pin = machine.cores().load
        self._wrk = Wrk(payload, folder, CONCURRENCY, pin=pin, path="/v2/models/m/infer")

    def rounds(
        self, states: Sequence[str], count: int, seconds: float
    ) -> dict[str, list[tuple[Load, float]]]:
        """Interleaved runs, by state; each with the workers' memory after it."""
        found: dict[str, list[tuple[Load, float]]] = {state: [] for state in states}
        for number in range(count):
            first = number % len(states)
            for state in (*states[first:], *states[:first]):
                found[state].append((self._run(state, seconds), workers_memory()))
                print(".", end="", file=sys.stderr, flush=True)
        return found

    def mirror_to(self, state: str) -> None:
        """Mirror calls to the candidate of this state."""
        mirror = {}
        if state in CANDIDATES:
            mirror = {"version": CANDIDATES[state], "percent": PERCENT, "code": True}
        until = time.monotonic() + PATIENCE
        while True:  # a candidate that was stopped may have to be loaded again first
            try:
                set_route(self._admin, "m", {"split": {1: 100}, "mirror": mirror})
                return
            except urllib.error.HTTPError as error:
                if error.code != 409 or time.monotonic() > until:
                    raise
            time.sleep(0.5)

    def _run(self, state: str, seconds: float) -> Load:
        if state in (OFF, WORKS, SLOW):  # to the others no new route may refer
            self.mirror_to(state)
        self._wrk.run(self._url, 1.0)  # until queues have the length that they keep
        return self._wrk.run(self._url, seconds)


def summarise(
    state: str, loads: Sequence[tuple[Load, float]], base: Sequence[tuple[Load, float]]
) -> Noticed:
    """The medians of the rounds."""
    pairs = [(one, other) for (one, _), (other, _) in zip(loads, base, strict=True)]
    return Noticed(
        state,
        statistics.median(one.p50 for one, _ in pairs),
        statistics.median(one.p99 for one, _ in pairs),
        statistics.median(one.p50 / other.p50 for one, other in pairs),
        statistics.median(one.p99 / other.p99 for one, other in pairs),
        sum(one.failed for one, _ in pairs),
        loads[-1][1],
    )


@contextlib.contextmanager
def pausing(pids: Sequence[int]) -> Iterator[None]:
    """Stop these processes for a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def stubs(version: int) -> list[int]:
    """The processes in which Triton runs this version of the Python model."""
    found = []
    for place in _processes():
        with contextlib.suppress(OSError):
            if f"/m/{version}/model.py".encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


def workers_memory() -> float:
    """MiB that the workers hold; a page that several share counts for each in part."""
    total = 0
    for place in _processes():
        with contextlib.suppress(OSError):
            if (place / "comm").read_text().startswith("sg-worker"):
                rollup = (place / "smaps_rollup").read_text().splitlines()
                total += int(next(row for row in rollup if row.startswith("Pss:")).split()[1])
    return total / 1024


def _processes() -> Iterator[Path]:
    return (place for place in Path("/proc").iterdir() if place.name.isdecimal())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10, help="of part 2 (default: 10)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run (default: 2)")
    parser.add_argument("--part", type=int, choices=(1, 2), help="run only this part")
    chosen = parser.parse_args()
    compared = cost(1.0) if chosen.part != 2 else []
    for one in compared:
        print(line(one))
    found = noticed(chosen.rounds, chosen.seconds) if chosen.part != 1 else []
    if found:
        print("\n| candidate | p50 | p99 | p50 ÷ no mirror | p99 ÷ no mirror | failed | MiB |")
        print("|---|---|---|---|---|---|---|")
    for state in found:
        times = f"{state.p50 / 1000:.2f} ms | {state.p99 / 1000:.2f} ms"
        ratios = f"{state.p50_ratio:.2f} | {state.p99_ratio:.2f}"
        print(f"| {state.state} | {times} | {ratios} | {state.failed} | {state.memory:.0f} |")
    path = FOLDER / f"mirror-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(exist_ok=True)
    page = {"cost": [asdict(one) for one in compared], "noticed": [asdict(one) for one in found]}
    path.write_text(json.dumps(page, indent=2))
    failed = sum(one.failed for one in found) + sum(sum(one.failed.values()) for one in compared)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
