"""How long a route change takes until every worker serves it, beside the process's own loop lag.

The control plane runs in this process, with real workers and a real Triton as child processes and a
steady load from another process. Each change is timed from the command to the acknowledgement of
the last worker. The loop lag (how late a timer of this process fires) says how much of that is the
machine; read the ratio, not the milliseconds.
"""

import argparse
import asyncio
import dataclasses
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from loadtests.bench.start import ROOT, free_ports
from serve.app.control import ControlPlane
from serve.app.proxy import DataPlane
from serve.control.models import By
from serve.core.routes import Split
from serve.processes import Ledger
from serve.settings import Settings
from serve.triton.installation import Installation, MachineFacts
from serve.triton.launcher import Launcher

BY = By("bench")
TIMER = 0.005  # seconds
LOAD = """
import http.client, sys, threading
body = open(sys.argv[2], "rb").read()
def call():
    connection = http.client.HTTPConnection(sys.argv[1], timeout=30)
    while True:
        connection.request("POST", "/v2/models/digits/infer", body)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            print("failed", answer.status, flush=True)
threads = [threading.Thread(target=call, daemon=True) for _ in range(4)]
[thread.start() for thread in threads]
sys.stdin.read()
"""


async def lag(samples: list[float]) -> None:
    """Collect how late a timer fires, until cancelled."""
    while True:
        begun = time.monotonic()
        await asyncio.sleep(TIMER)
        samples.append(time.monotonic() - begun - TIMER)


async def change(plane: ControlPlane, weight: int) -> float:
    """Seconds from a route change to its acknowledgement by the last worker."""
    begun = time.monotonic()
    split = Split.of({1: 100 - weight, 2: weight})
    generation, _ = await plane.models.set_route("digits", split, BY)
    if not await plane.publisher.in_force(generation, 10.0):
        raise RuntimeError("a change was not active after 10 s")
    return time.monotonic() - begun


async def measure(settings: Settings, changes: int) -> tuple[list[float], list[float], int]:
    """The times of all changes, the loop's lags, and how many calls of the load failed."""
    ledger = Ledger(settings.state_path / "children.json")
    launcher = Launcher(
        1,
        [settings.model_repo],
        state=settings.state_path,
        installation=Installation.find(MachineFacts.here()),
        ledger=ledger,
        logger=logging.getLogger("servegate.triton"),
    )
    async with launcher:
        await launcher.wait_ready()
        addresses = tuple(one.address for one in launcher.replicas)
        plane = ControlPlane(dataclasses.replace(settings, triton=addresses))
        stop = asyncio.Event()
        running = asyncio.create_task(plane.run(stop))
        workers = DataPlane(settings, ledger)
        workers.reserve()
        async with workers:
            while not (
                len(plane.publisher.workers) == settings.workers
                and "digits" in plane.publisher.snapshot.models
                and len(plane.publisher.snapshot.models["digits"].targets) == 2
            ):
                await asyncio.sleep(0.05)
            await plane.publisher.in_force(plane.publisher.snapshot.generation, 10.0)
            times, lags, failed = await under_load(settings, partial(change, plane), changes)
        stop.set()
        await running
    return times, lags, failed


async def under_load(
    settings: Settings, one_change: Callable[[int], Awaitable[float]], changes: int
) -> tuple[list[float], list[float], int]:
    """Make the changes, one after the other, while another process calls."""
    load = subprocess.Popen(
        [
            *(sys.executable, "-c", LOAD, f"127.0.0.1:{settings.http_port}"),
            str(ROOT / "examples/digits/seven.json"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    times: list[float] = []
    lags: list[float] = []
    sampling = asyncio.create_task(lag(lags))
    try:
        for number in range(changes):
            times.append(await one_change(1 + number % 99))
            await asyncio.sleep(0.01)
    finally:
        sampling.cancel()
        said, _ = await asyncio.to_thread(load.communicate, "")
    return times, lags, said.count("failed")


def quantile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return 1000 * sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main() -> int:
    """Measure and print the table; exit status 1 when a call of the load failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    http, grpc, metrics, admin = free_ports(4)
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        settings = Settings(
            model_repo=str(ROOT / "model_repo"),
            state=str(Path(folder)),
            workers=chosen.workers,
            http_port=http,
            grpc_port=grpc,
            metrics_port=metrics,
            admin_port=admin,
            log_level="error",
        )
        times, lags, failed = uvloop.run(measure(settings, chosen.changes))
    print("                    p50        p99")
    for name, values in (("change everywhere", times), ("loop lag", lags)):
        print(f"{name:18} {quantile(values, 0.5):6.2f} ms  {quantile(values, 0.99):6.2f} ms")
    ratios = [quantile(times, q) / max(quantile(lags, q), 0.001) for q in (0.5, 0.99)]
    print(f"{'ratio':18} {ratios[0]:6.1f}     {ratios[1]:6.1f}")
    mean = statistics.fmean(times) * 1000
    print(f"{len(times)} changes, {chosen.workers} workers, mean {mean:.2f} ms")
    print(f"{failed} calls of the load failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
