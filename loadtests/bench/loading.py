"""The load generator itself: does it tell the truth, and what does it cost?

    python -m loadtests.bench.loading [--only stall cost beside find-max] [--pairs 5]

- **stall**: a real Triton is stopped for three seconds (SIGSTOP) under the same load in an open and
  in a closed loop. What users saw is in the open one.
- **cost**: calls per CPU second of the generator, beside wrk's, in front of a C program that
  answers at once. Each has the same core for itself.
- **beside**: throughput, p50 and p99 beside wrk (HTTP) and h2load (gRPC): same bodies, same Triton,
  same calls in flight, interleaved, who begins taking turns.
- **find-max**: what `--find-max` says, beside a fine sweep by hand, on the demo's gateway.

Prints tables and writes `loadtests/results/load-*.json`.
"""

import argparse
import asyncio
import dataclasses
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from serve.load.running import run

from loadtests.bench import machine
from loadtests.bench.generators import H2load, Wrk
from loadtests.bench.payloads import Payload, binary_tensor, prefixed
from loadtests.bench.results import FOLDER, today, write_page
from loadtests.bench.start import BIN, ROOT, free_ports, until_ready
from loadtests.bench.started import Programs, listening
from loadtests.bench.upstreams import compile_native
from serve.load.bodies import path_of, payload_of
from serve.load.plan import Arrivals, Closed, Lane, Plan, Protocol
from serve.load.reporting.report import Run
from serve.load.reporting.summary import total
from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import Facts, Installation

IN_FLIGHT = 16
STALL = 3.0  # seconds
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # 97.5 %, by pairs
OBJECTIVE = "p99<50ms,errors<0.1%"


@dataclass(frozen=True, slots=True)
class Interval:
    """Of ratios: their geometric mean, with a 95 % t-interval of the logarithm."""

    name: str
    ratios: tuple[float, ...]
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, ratios: Sequence[float]) -> "Interval":
        logs = [math.log(each) for each in ratios]
        middle = statistics.fmean(logs)
        half = STUDENT[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
        edges = (math.exp(middle + sign * half) for sign in (0, -1, 1))
        return cls(name, tuple(ratios), *edges)

    @property
    def overlaps(self) -> bool:
        """Whether it has a part of [0.9, 1.1]."""
        return self.low <= 1.1 and self.high >= 0.9

    def line(self) -> str:
        verdict = "overlaps [0.9, 1.1]" if self.overlaps else "does not overlap [0.9, 1.1]"
        return f"{self.name:34}{self.mean:7.3f} ({self.low:.3f}–{self.high:.3f})  {verdict}"


@dataclass(frozen=True, slots=True)
class Told:
    """What one run of a generator says. Latencies in seconds."""

    rate: float
    p50: float
    p99: float
    calls: int
    failed: int
    cpu: float  # seconds


def ours(lane: Lane, seconds: float, *, closed: Closed | None = None, rate: float = 0.0) -> Told:
    """A run of our generator: one process, after half a second that is not counted."""
    plan = Plan(
        (lane,),
        seconds,
        arrivals=None if closed else Arrivals(rate),
        closed=closed,
        warm_up=0.5,
        seed=1,
    )
    quiet: Callable[..., None] = lambda *_: None  # noqa: E731
    record = asyncio.run(run(plan, on_begin=quiet, on_window=quiet))
    found = total(Run("", plan.outline(), record))
    windows = record.windows.values()
    cpu = sum(each.generator.cpu for each in windows)
    ended = sum(each.generator.ended for each in windows)
    return Told(
        ended / seconds, found.latency.p50, found.latency.p99, ended, ended - found.right, cpu
    )


def wrk(payload: Payload, url: str, path: str, seconds: float, folder: Path) -> Told:
    """A run of wrk, with the CPU time of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    load = Wrk(payload, folder, IN_FLIGHT, path=path).run(url, seconds)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rate = load.calls / load.seconds
    return Told(rate, load.p50 / 1e6, load.p99 / 1e6, load.calls, load.failed, cpu)


def cost(folder: Path, pairs: int, seconds: float) -> dict[str, Any]:
    """Calls per CPU second, of ours to wrk's."""
    payload = binary_tensor(64)
    (port,) = free_ports(1)
    cores = sorted(os.sched_getaffinity(0))
    rows = []
    with Programs(folder) as programs:
        binary = compile_native("http_upstream.c", folder / "upstream")
        pin = ("taskset", "-c", str(cores[0]))
        programs.wait(
            "upstream",
            programs.start("upstream", (*pin, str(binary), str(port))),
            partial(listening, port),
        )
        lane = lane_of(Protocol.HTTP_BINARY, port, "/v2/models/null/infer", payload)
        os.sched_setaffinity(0, {cores[-1]})
        try:
            for number in range(pairs):
                todo = [
                    ("ours", lambda: ours(lane, seconds, closed=Closed(IN_FLIGHT))),
                    ("wrk", lambda: wrk(payload, url(port), lane.path, seconds, folder)),
                ]
                found = {name: make() for name, make in (todo if number % 2 else todo[::-1])}
                rows.append(found)
                per = {name: one.calls / one.cpu for name, one in found.items()}
                print(
                    f"  ours {per['ours']:9.0f}   wrk {per['wrk']:9.0f} calls per CPU second   "
                    f"ratio {per['ours'] / per['wrk']:.3f}",
                    flush=True,
                )
        finally:
            os.sched_setaffinity(0, cores)
    ratios = [
        one["ours"].calls / one["ours"].cpu / (one["wrk"].calls / one["wrk"].cpu) for one in rows
    ]
    interval = Interval.of("calls per CPU second, ours ÷ wrk's", ratios)
    print(f"  {interval.mean:.3f} ({interval.low:.3f}–{interval.high:.3f}), goal ≥ 0.25")
    return {"ratio": dataclasses.asdict(interval), "rows": _plain(rows)}


def beside(folder: Path, pairs: int, seconds: float) -> dict[str, Any]:
    """Throughput and latencies on the digits model, ours to wrk's and to h2load's."""
    generator = np.random.default_rng(1)
    tensors = {"x": generator.random((1, 8, 8, 1), np.float32)}
    intervals, all_rows = [], {}
    with Programs(folder) as programs:
        http, grpc = triton(programs, folder)
        for name, protocol in (("HTTP", Protocol.HTTP_BINARY), ("gRPC", Protocol.GRPC)):
            payload = payload_of(protocol, "digits", "1", tensors, {"x": "FP32"})
            port = http if protocol is Protocol.HTTP_BINARY else grpc
            lane = Lane(
                name,
                protocol,
                f"127.0.0.1:{port}",
                path_of(protocol, "digits", "1"),
                (payload,),
            )
            other = _other(lane, payload.body, payload.headers, port, folder)
            rows = []
            for number in range(pairs):
                todo = [
                    ("ours", partial(ours, lane, seconds, closed=Closed(IN_FLIGHT))),
                    ("other", partial(other, seconds)),
                ]
                rows.append({key: make() for key, make in (todo if number % 2 else todo[::-1])})
                print(f"  {name} pair {number + 1}: {_pair(rows[-1])}", flush=True)
            all_rows[name] = _plain(rows)
            for what in ("rate", "p50", "p99"):
                ratios = [getattr(one["ours"], what) / getattr(one["other"], what) for one in rows]
                intervals.append(Interval.of(f"{name} {what}, ours ÷ {_peer(protocol)}", ratios))
                print("  " + intervals[-1].line(), flush=True)
    return {"ratios": [dataclasses.asdict(each) for each in intervals], "rows": all_rows}


def stall(folder: Path, seconds: float) -> dict[str, Any]:
    """The same stall under an open and a closed loop."""
    generator = np.random.default_rng(1)
    tensors = {"x": generator.random((1, 8, 8, 1), np.float32)}
    payload = payload_of(Protocol.HTTP_BINARY, "digits", "1", tensors, {"x": "FP32"})
    found: dict[str, Told] = {}
    with Programs(folder) as programs:
        http, _ = triton(programs, folder)
        path = path_of(Protocol.HTTP_BINARY, "digits", "1")
        lane = Lane("HTTP", Protocol.HTTP_BINARY, f"127.0.0.1:{http}", path, (payload,))
        pid = programs.processes["triton"].pid
        for name, closed in (("open", None), ("closed", Closed(4, rate=100.0))):
            timers = [
                threading.Timer(when, os.kill, (pid, number))
                for when, number in (
                    (seconds / 2, signal.SIGSTOP),
                    (seconds / 2 + STALL, signal.SIGCONT),
                )
            ]
            for timer in timers:
                timer.start()
            found[name] = ours(lane, seconds, closed=closed, rate=100.0)
            for timer in timers:
                timer.join()
            one = found[name]
            print(
                f"  {name:7} p50 {one.p50 * 1e3:8.1f} ms   p99 {one.p99 * 1e3:8.1f} ms", flush=True
            )
    ratio = found["open"].p99 / found["closed"].p99
    print(f"  p99 of the open loop ÷ p99 of the closed loop: {ratio:.0f}")
    return {"ratio": ratio, **{name: dataclasses.asdict(one) for name, one in found.items()}}


def finding(folder: Path, pairs: int, seconds: float) -> dict[str, Any]:
    """`--find-max` on the demo's gateway, and the highest rate of a sweep by hand that passes."""
    http, grpc, metrics, admin = free_ports(4)
    urls = ["--url", url(http), "--grpc-url", f"127.0.0.1:{grpc}"]
    urls += ["--admin-url", url(admin), "--metrics-url", url(metrics)]
    rows = []
    with Programs(folder) as programs:
        process = programs.start(
            "gateway",
            [
                *(str(BIN / "servegate"), "up", "--replicas", "2", "--state", str(folder / "s")),
                *("--http-port", str(http), "--grpc-port", str(grpc), "--log-level", "error"),
                *("--metrics-port", str(metrics), "--admin-port", str(admin)),
                *("--model-repo", str(ROOT / "model_repo")),
            ],
        )
        programs.wait("gateway", process, partial(listening, http, admin))
        until_ready(f"{url(http)}/v2/health/ready", time.monotonic())
        asked = partial(_asked, urls=urls, out=folder / "reports", seconds=seconds)
        for number in range(pairs):
            best = float(asked("--find-max")["rate"])
            swept = _sweep(best, lambda rate: bool(asked("--rate", f"{rate:.1f}")["passed"]))
            rows.append({"find_max": best, "sweep": swept})
            print(
                f"  pair {number + 1}: --find-max {best:.0f}, sweep {swept:.0f} calls/s, "
                f"ratio {best / swept:.3f}",
                flush=True,
            )
    interval = Interval.of("--find-max ÷ sweep", [one["find_max"] / one["sweep"] for one in rows])
    print("  " + interval.line())
    return {"ratio": dataclasses.asdict(interval), "rows": rows, "objective": OBJECTIVE}


def _sweep(around: float, passes: Callable[[float], bool]) -> float:
    """Every 4 % from 70 % upwards, until two in a row fail: the highest that passed."""
    best, failures, rate = 0.0, 0, around * 0.7
    while failures < 2 and rate < around * 2:
        if passes(rate):
            best, failures = rate, 0
        else:
            failures += 1
        rate *= 1.04
    return best or around * 0.7


def _asked(*words: str, urls: Sequence[str], out: Path, seconds: float) -> dict[str, Any]:
    """The last event of a `servegate load run`."""
    command = [str(BIN / "servegate"), "load", "run", "--model", "digits", "--slo", OBJECTIVE]
    command += ["--for", f"{seconds}s", "--json", "--out", str(out), "--no-observe", *urls, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 7):
        raise RuntimeError(done.stdout + done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _other(
    lane: Lane,
    body: bytes,
    headers: Sequence[tuple[str, str]],
    port: int,
    folder: Path,
) -> Callable[[float], Told]:
    if lane.protocol is Protocol.HTTP_BINARY:
        return lambda seconds: wrk(
            Payload(body, tuple(headers)), url(port), lane.path, seconds, folder
        )
    making = H2load(prefixed(body), folder, IN_FLIGHT)

    def h2load(seconds: float) -> Told:
        load = making.run(url(port), seconds)
        rate = load.calls / load.seconds
        return Told(rate, load.p50 / 1e6, load.p99 / 1e6, load.calls, load.failed, 0.0)

    return h2load


def lane_of(protocol: Protocol, port: int, path: str, payload: Payload) -> Lane:
    """A lane with a body of the data plane's benchmark."""
    from serve.load.plan import Payload as Ours

    return Lane("", protocol, f"127.0.0.1:{port}", path, (Ours(payload.body, payload.fields),))


def triton(programs: Programs, folder: Path) -> tuple[int, int]:
    """A bare Triton with the demo's models; its HTTP and gRPC ports."""
    installation = Installation.find(Facts.here())
    backends = build_backend_directory(installation, folder)
    http, grpc = free_ports(2)
    process = programs.start(
        "triton",
        [
            *(str(installation.binary), "--model-repository", str(ROOT / "model_repo")),
            *("--backend-directory", str(backends), "--log-error=true", "--log-info=false"),
            *("--http-port", str(http), "--grpc-port", str(grpc), "--allow-metrics=false"),
            *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1"),
            *("--allow-sagemaker=false", "--allow-vertex-ai=false", "--exit-timeout-secs=3"),
        ],
        installation.environment(os.environ),
    )
    programs.wait("triton", process, partial(listening, http, grpc))
    until_ready(f"{url(http)}/v2/health/ready", time.monotonic())
    return http, grpc


def url(port: int) -> str:
    """On loopback."""
    return f"http://127.0.0.1:{port}"


def _peer(protocol: Protocol) -> str:
    return "wrk" if protocol is Protocol.HTTP_BINARY else "h2load"


def _pair(found: dict[str, Told]) -> str:
    told = (
        f"{name} {one.rate:7.0f}/s p50 {one.p50 * 1e3:6.2f} p99 {one.p99 * 1e3:6.2f} ms"
        for name, one in sorted(found.items(), reverse=True)
    )
    return "   ".join(told)


def _plain(rows: Sequence[dict[str, Told]]) -> list[dict[str, Any]]:
    return [{name: dataclasses.asdict(one) for name, one in row.items()} for row in rows]


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("stall", "cost", "beside", "find-max")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one run")
    chosen = parser.parse_args()
    page: dict[str, Any] = {"date": today(), "machine": machine.describe()}
    for part in chosen.only:
        print(part, flush=True)
        with tempfile.TemporaryDirectory(prefix="sg-bench-") as name:
            folder = Path(name)
            if part == "stall":
                page[part] = stall(folder, 30.0)
            elif part == "cost":
                page[part] = cost(folder, chosen.pairs, chosen.seconds)
            elif part == "beside":
                page[part] = beside(folder, chosen.pairs, chosen.seconds)
            else:
                page[part] = finding(folder, chosen.pairs, chosen.seconds)
    path = FOLDER / f"load-{time.strftime('%Y%m%d-%H%M%S')}.json"
    write_page(path, page)
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
