"""Warm start: `servegate up` against one bare Triton that loads the same models, interleaved.

Each pair starts both, one after the other, from "nothing runs" to "every model is ready". Prints
each pair's ratio and their median; the exit status is 1 when the median is above `--limit`.
"""

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import Installation, MachineFacts

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 120.0  # seconds


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def until_ready(url: str, begun: float) -> float:
    """Seconds from `begun` until the URL answers 200."""
    while time.monotonic() - begun < PATIENCE:
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(url, timeout=2) as answer,
        ):
            if answer.status == 200:
                return time.monotonic() - begun
        time.sleep(0.02)
    raise TimeoutError(url)


def gateway(state: Path, replicas: int) -> float:
    """One start of `servegate up` with a state folder that has been used before."""
    http, grpc, metrics, admin = free_ports(4)
    begun = time.monotonic()
    process = subprocess.Popen(
        [
            *(str(BIN / "servegate"), "up", "--replicas", str(replicas), "--state", str(state)),
            *("--http-port", str(http), "--grpc-port", str(grpc)),
            *("--metrics-port", str(metrics), "--admin-port", str(admin)),
            *("--model-repo", str(ROOT / "model_repo"), "--log-level", "error"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("ready: "):
                return time.monotonic() - begun
        raise RuntimeError("servegate up exited before it was ready")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def bare(state: Path) -> float:
    """One start of a Triton with the same models and nothing in front of it."""
    installation = Installation.find(MachineFacts.here())
    backends = build_backend_directory(installation, state)
    http, grpc, metrics = free_ports(3)
    begun = time.monotonic()
    process = subprocess.Popen(
        [
            *(str(installation.binary), "--model-repository", str(ROOT / "model_repo")),
            *("--backend-directory", str(backends), "--log-error=true", "--log-info=false"),
            *("--http-port", str(http), "--grpc-port", str(grpc), "--metrics-port", str(metrics)),
            *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1"),
            *("--allow-sagemaker=false", "--allow-vertex-ai=false", "--exit-timeout-secs=3"),
            "--metrics-address=127.0.0.1",
        ],
        env=installation.environment(os.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return until_ready(f"http://127.0.0.1:{http}/v2/health/ready", begun)
    finally:
        process.terminate()
        process.wait(30)


def main() -> int:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--replicas", type=int, default=2, help="number of replicas (default: as in the demo)"
    )
    parser.add_argument("--limit", type=float, default=3.0)
    chosen = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        state = Path(folder)
        gateway(state, chosen.replicas)  # the first start makes the state folder: not counted
        print("pair  servegate up  bare Triton  ratio")
        for pair in range(1, chosen.pairs + 1):
            ours, theirs = gateway(state, chosen.replicas), bare(state)
            ratios.append(ours / theirs)
            print(f"{pair:4}  {ours:10.2f} s  {theirs:9.2f} s  {ratios[-1]:5.2f}", flush=True)
    median = statistics.median(ratios)
    print(
        f"warm start, {chosen.replicas} replicas: median ratio {median:.2f} (limit {chosen.limit})"
    )
    return 0 if median <= chosen.limit else 1


if __name__ == "__main__":
    sys.exit(main())
