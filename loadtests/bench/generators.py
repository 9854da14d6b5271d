"""Load generators: each drives one URL for a while and says how many calls it got answered.

wrk for HTTP and h2load for gRPC are cheap enough to leave the proxy the bottleneck. Both count what
looks like success (h2load any HTTP 200, which gRPC also sends with errors), so `verifying` looks at
the answers themselves. `clients` and `replay` hold two generators more.
"""

import json
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loadtests.bench.keys import CREDENTIAL
from loadtests.bench.payloads import Payload

INFER = "/v2/models/null/infer"
GRPC_INFER = "/inference.GRPCInferenceService/ModelInfer"
SCRIPT = Path(__file__).parent / "infer.lua"
PATIENCE = 60.0  # seconds beyond a run's own length


@dataclass(frozen=True, slots=True)
class Load:
    """What one run did. Latencies in microseconds; `failed` counts answers that are not right."""

    calls: int
    seconds: float
    failed: int
    p50: float
    p99: float


class Generator(Protocol):
    """One way of calling a target; `url` is its scheme, host and port."""

    def run(self, url: str, seconds: float) -> Load:
        """Call for about so many seconds."""

    def close(self) -> None:
        """End what stays between runs."""


@dataclass(frozen=True, slots=True)
class Wrk:
    """HTTP/1.1 over `concurrency` connections. `trace`: a fresh `traceparent` for every call."""

    payload: Payload
    folder: Path
    concurrency: int
    pin: tuple[str, ...] = ()
    trace: bool = False
    path: str = INFER

    def run(self, url: str, seconds: float) -> Load:
        """wrk knows whole seconds only."""
        body = self.folder / "body"
        body.write_bytes(self.payload.body)
        fields = [f"{name}={value}" for name, value in self.payload.fields]
        argv = [
            *(*self.pin, "wrk", "-t", "1", "-c", str(self.concurrency), "--timeout", "60s"),
            *("-d", f"{max(1, round(seconds))}s", "-s", str(SCRIPT), url + self.path, "--"),
            *(str(body), "fresh" if self.trace else "same", *fields),
        ]
        said = _run(argv, seconds)
        found = re.search(r"^measured (\{.*\})$", said, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"the output of wrk cannot be read: {said}")
        page = json.loads(found[1])
        seconds = page["microseconds"] / 1e6
        return Load(page["calls"], seconds, page["failed"], page["p50"], page["p99"])

    def close(self) -> None:
        """Nothing stays between runs."""


@dataclass(slots=True)
class H2load:
    """HTTP/2 calls of `concurrency` streams over few connections.

    The number of calls is fixed and not the time, from the rate last seen on that target: a timed
    run ends by leaving calls in flight, on which Triton before 24.12 can crash.
    """

    body: bytes
    folder: Path
    concurrency: int
    connections: int = 4
    pin: tuple[str, ...] = ()
    _rates: dict[str, float] = field(default_factory=dict)

    def run(self, url: str, seconds: float) -> Load:
        """A short run before the first finds out how many calls fit into the time."""
        if url not in self._rates:
            self._calls(url, self.concurrency * 8)
            probe = self._calls(url, self.concurrency * 16)
            self._rates[url] = probe.calls / probe.seconds
        load = self._calls(url, max(self.concurrency * 4, int(self._rates[url] * seconds)))
        self._rates[url] = load.calls / load.seconds
        return load

    def close(self) -> None:
        """Nothing stays between runs."""

    def _calls(self, url: str, count: int) -> Load:
        body, log = self.folder / "message", self.folder / "h2load.log"
        body.write_bytes(self.body)
        log.unlink(missing_ok=True)
        argv = [
            *(*self.pin, "h2load", "-t", "1", "-c", str(self.connections), "-n", str(count)),
            *("-m", str(self.concurrency // self.connections), "-w", "24", "-W", "27"),
            *("-d", str(body), "--log-file", str(log)),
            *("-H", "content-type: application/grpc", "-H", "te: trailers"),
            *("-H", ": ".join(CREDENTIAL), url + GRPC_INFER),
        ]
        begun = time.monotonic()
        said = _run(argv, 600)
        wall = time.monotonic() - begun
        finished = re.search(r"^finished in ([\d.]+)(m?s|us)", said, re.MULTILINE)
        if finished:
            wall = float(finished[1]) * {"s": 1, "ms": 1e-3, "us": 1e-6}[finished[2]]
        rows = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        if not rows:
            raise RuntimeError(f"h2load got no response: {said}")
        times = sorted(float(row[2]) for row in rows)
        failed = sum(row[1] != "200" for row in rows) + count - len(rows)
        return Load(len(rows), wall, failed, quantile(times, 0.5), quantile(times, 0.99))


def quantile(ordered: list[float], share: float) -> float:
    """Of sorted values."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _run(argv: list[str], seconds: float) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + PATIENCE)
    if done.returncode:
        raise RuntimeError(f"{argv} exited with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr
