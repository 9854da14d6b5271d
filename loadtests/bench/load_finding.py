"""`--find-max` beside a fine sweep by hand, on the demo's gateway."""

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.bench.load_pairs import Interval, url
from loadtests.bench.start import BIN, ROOT, free_ports, until_ready
from loadtests.bench.started import Programs, listening

OBJECTIVE = "p99<50ms,errors<0.1%"


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
            best = float(asked("--find-max")["sweep"]["best"])
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
    """Every 4 % from 76 % upwards, to the first rate that fails twice: the one below it."""
    best = rate = around * 0.76
    while rate < around * 2 and (passes(rate) or passes(rate)):
        best, rate = rate, rate * 1.04
    return best


def _asked(*words: str, urls: Sequence[str], out: Path, seconds: float) -> dict[str, Any]:
    """The last event of a `servegate load run`."""
    command = [str(BIN / "servegate"), "load", "run", "--model", "digits", "--slo", OBJECTIVE]
    command += ["--for", f"{seconds}s", "--json", "--out", str(out), "--no-observe", *urls, *words]
    command += ["--protocol", "http-json", "--batch", "32"]  # so that the server is the limit
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 7):
        raise RuntimeError(done.stdout + done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
