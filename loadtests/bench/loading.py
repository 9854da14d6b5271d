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
import dataclasses
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.bench import machine
from loadtests.bench.generators import H2load
from loadtests.bench.load_finding import finding
from loadtests.bench.load_pairs import IN_FLIGHT, Interval, Told, lane_of, ours, triton, url, wrk
from loadtests.bench.payloads import Payload, binary_tensor, prefixed
from loadtests.bench.results import FOLDER, today, write_page
from loadtests.bench.start import free_ports
from loadtests.bench.started import Programs, listening
from loadtests.bench.upstreams import compile_native
from serve.workbench.loadtest.bodies import path_of, payload_of
from serve.workbench.loadtest.plan import Closed, Lane, LaneProtocol

STALL = 3.0  # seconds


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
        lane = lane_of(LaneProtocol.HTTP_BINARY, port, "/v2/models/null/infer", payload)
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
        for name, protocol in (("HTTP", LaneProtocol.HTTP_BINARY), ("gRPC", LaneProtocol.GRPC)):
            payload = payload_of(protocol, "digits", "1", tensors, {"x": "FP32"})
            port = http if protocol is LaneProtocol.HTTP_BINARY else grpc
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
    payload = payload_of(LaneProtocol.HTTP_BINARY, "digits", "1", tensors, {"x": "FP32"})
    found: dict[str, Told] = {}
    with Programs(folder) as programs:
        http, _ = triton(programs, folder)
        path = path_of(LaneProtocol.HTTP_BINARY, "digits", "1")
        lane = Lane("HTTP", LaneProtocol.HTTP_BINARY, f"127.0.0.1:{http}", path, (payload,))
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


def _other(
    lane: Lane,
    body: bytes,
    headers: Sequence[tuple[str, str]],
    port: int,
    folder: Path,
) -> Callable[[float], Told]:
    if lane.protocol is LaneProtocol.HTTP_BINARY:
        return lambda seconds: wrk(
            Payload(body, tuple(headers)), url(port), lane.path, seconds, folder
        )
    making = H2load(prefixed(body), folder, IN_FLIGHT)

    def h2load(seconds: float) -> Told:
        load = making.run(url(port), seconds)
        rate = load.calls / load.seconds
        return Told(rate, load.p50 / 1e6, load.p99 / 1e6, load.calls, load.failed, 0.0)

    return h2load


def _peer(protocol: LaneProtocol) -> str:
    return "wrk" if protocol is LaneProtocol.HTTP_BINARY else "h2load"


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
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of one run in seconds")
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
