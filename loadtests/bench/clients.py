"""A second opinion: the load of Triton's own Python clients, in a few processes.

They cost far more than a proxy does, so their rows say little about calls a second. They do say
what a call costs the proxy when real clients make it: other header fields, frames and timing.

The processes stay for all runs of a row. A line on stdin orders a run, `URL SECONDS`; a line on
stdout answers it in JSON.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtests.bench.generators import GRPC_INFER, Load, quantile
from loadtests.bench.keys import CREDENTIAL
from loadtests.bench.payloads import VALUE, grpc_message

ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class Clients:
    """One client in each of `processes` processes, each with one call at a time."""

    protocol: str  # "http": tritonclient; "grpc": grpcio with ready-made messages
    size: int
    processes: int
    pin: tuple[str, ...] = ()
    trace: bool = False
    _started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def run(self, url: str, seconds: float) -> Load:
        """All processes at once; calls that failed are counted, not timed."""
        if not self._started:
            self._started = [self._start() for _ in range(self.processes)]
        for process in self._started:
            assert process.stdin is not None
            process.stdin.write(f"{url} {seconds}\n")
            process.stdin.flush()
        pages = [self._read(process) for process in self._started]
        times = sorted(time for page in pages for time in page["times"])
        failed = sum(page["failed"] for page in pages)
        if not times:
            raise RuntimeError(f"no client got a response from {url}: {pages[0]['error']}")
        longest = max(page["seconds"] for page in pages)
        return Load(len(times), longest, failed, quantile(times, 0.5), quantile(times, 0.99))

    def close(self) -> None:
        """End the processes."""
        for process in self._started:
            process.communicate(timeout=30)
        self._started = []

    def _start(self) -> "subprocess.Popen[str]":
        trace = "fresh" if self.trace else "same"
        argv = (sys.executable, "-m", "loadtests.bench.clients")
        return subprocess.Popen(
            [*self.pin, *argv, self.protocol, str(self.size), trace],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    @staticmethod
    def _read(process: "subprocess.Popen[str]") -> dict[str, Any]:
        assert process.stdout is not None
        page: dict[str, Any] = json.loads(process.stdout.readline())
        return page


def traceparent(draw: random.Random) -> str:
    """A fresh one, as W3C Trace Context writes it."""
    return f"00-{draw.getrandbits(128):032x}-{draw.getrandbits(64):016x}-01"


def _trace(draw: random.Random, trace: bool) -> tuple[tuple[str, str], ...]:
    return (("traceparent", traceparent(draw)),) if trace else ()


def http_call(url: str, size: int, trace: bool) -> Callable[[], None]:
    """A function that makes one call with tritonclient, and raises when it fails."""
    import numpy as np
    import tritonclient.http

    client = tritonclient.http.InferenceServerClient(urlsplit(url).netloc, network_timeout=60)
    values = np.full((1, max(1, size // 4)), VALUE, np.float32)
    tensor = tritonclient.http.InferInput("x", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    draw = random.Random()

    def call() -> None:
        headers = dict((CREDENTIAL, *_trace(draw, trace)))
        client.infer("null", [tensor], headers=headers)

    return call


def grpc_call(url: str, size: int, trace: bool) -> Callable[[], None]:
    """A function that makes one call with grpcio, and raises unless the status is OK."""
    import grpc

    options = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    method = grpc.insecure_channel(urlsplit(url).netloc, options).unary_unary(GRPC_INFER)
    message = grpc_message(size)[5:]
    draw = random.Random()

    def call() -> None:
        method(message, metadata=(CREDENTIAL, *_trace(draw, trace)), timeout=60)

    return call


def loop(call: Callable[[], None], seconds: float) -> dict[str, object]:
    """Call for so long; the times are in microseconds."""
    times: list[float] = []
    failed, error = 0, ""
    begun = now = time.perf_counter()
    while now - begun < seconds:
        try:
            call()
        except Exception as raised:  # of many kinds: each is a failed call
            failed, error = failed + 1, repr(raised)
        else:
            times.append((time.perf_counter() - now) * 1e6)
        now = time.perf_counter()
    return {"times": times, "failed": failed, "error": error, "seconds": now - begun}


def serve(protocol: str, size: int, trace: bool) -> None:
    """Run what stdin orders, until it ends. A connection per URL is kept."""
    connect = {"http": http_call, "grpc": grpc_call}[protocol]
    calls: dict[str, Callable[[], None]] = {}
    for line in sys.stdin:
        url, seconds = line.split()
        if url not in calls:
            calls[url] = connect(url, size, trace)
            calls[url]()  # connects; not timed
        print(json.dumps(loop(calls[url], float(seconds))), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "fresh")
