"""What the benchmarks of the load generator share: runs of ours and of wrk, ratios of pairs."""

import asyncio
import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtests.bench.generators import Wrk
from loadtests.bench.payloads import Payload
from loadtests.bench.start import ROOT, free_ports, until_ready
from loadtests.bench.started import Programs, listening
from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import Installation, MachineFacts
from serve.workbench.loadtest.plan import Arrivals, Closed, Lane, LaneProtocol, LoadPlan
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.reports.summary import total
from serve.workbench.loadtest.runner import run

IN_FLIGHT = 16
STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # 97.5 %, by pairs


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
    plan = LoadPlan(
        (lane,),
        seconds,
        arrivals=None if closed else Arrivals(rate),
        closed=closed,
        warm_up=0.5,
        seed=1,
    )
    quiet: Callable[..., None] = lambda *_: None  # noqa: E731
    record = asyncio.run(run(plan, on_begin=quiet, on_window=quiet))
    found = total(LoadRun("", plan.outline(), record))
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


def lane_of(protocol: LaneProtocol, port: int, path: str, payload: Payload) -> Lane:
    """A lane with a body of the data plane's benchmark."""
    from serve.workbench.loadtest.plan import Payload as Ours

    return Lane("", protocol, f"127.0.0.1:{port}", path, (Ours(payload.body, payload.fields),))


def triton(programs: Programs, folder: Path) -> tuple[int, int]:
    """A bare Triton with the demo's models; its HTTP and gRPC ports."""
    installation = Installation.find(MachineFacts.here())
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
