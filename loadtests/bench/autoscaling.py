"""The real loop: `servegate up --autoscale 1..3` follows its own hints while the load moves.

The model is `digits`, whose executions are stretched to the time that an accelerator would take for
a heavier one (40 ms and 10 ms for each row): it waits instead of computing, so that three replicas
bear three times as much, also on a machine with two cores. All else is real: Tritons that start and
end, the gateway in front of them, and the load generator, which plays one trace:

    quiet   a step to four times as much   a ramp to ten times   the peak   quiet again

Counted are the calls that were not answered rightly; recorded are demand, hint and replicas. Prints
a table in Markdown, writes `loadtests/results/autoscaling-*.json` and draws two pictures in
`docs/images`; the exit status is 1 when a call failed, or nothing was scaled.
"""

import argparse
import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.bench import machine
from loadtests.bench.autoscaling_report import pictures, table
from loadtests.bench.load_pairs import url
from loadtests.bench.results import FOLDER, today, write_page
from loadtests.bench.start import BIN, ROOT, free_ports, until_ready
from loadtests.bench.started import Programs, listening
from serve.workbench.loadtest.reports.folder import read
from serve.workbench.loadtest.reports.report import LoadReport
from serve.workbench.loadtest.reports.summary import over_time, total

IMAGES = ROOT / "docs" / "images"
LEAST, MOST = 1, 3
FIXED, PER_ROW, LARGEST = 0.040, 0.010, 8  # seconds, seconds, rows
_EVERY = 1.0  # seconds from one look at the hint to the next
_TOLD = ("desired", "ready", "starting", "demand", "cold_start", "reasons", "models")

_CODE = f"""\
import time
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        path = Path(args["model_repository"], args["model_version"], "digits.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options)

    def execute(self, requests):
        began = time.monotonic()
        rows = [pb.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        (found,) = self.session.run(["probabilities"], {{"x": np.concatenate(rows)}})
        parts = np.split(found, np.cumsum([len(one) for one in rows])[:-1])
        until = began + {FIXED} + {PER_ROW} * len(found)
        time.sleep(max(0.0, until - time.monotonic()))
        return [pb.InferenceResponse([pb.Tensor("probabilities", part)]) for part in parts]
"""
_CONFIG = f"""\
name: "digits"
backend: "python"
max_batch_size: {LARGEST}
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 8, 8, 1 ] }} ]
output [ {{ name: "probabilities" data_type: TYPE_FP32 dims: [ 10 ] }} ]
dynamic_batching {{ }}
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""


@dataclass(frozen=True, slots=True)
class Part:
    """So many seconds, in which the rate goes from one value to another, in calls per second."""

    name: str
    seconds: float
    first: float
    last: float


PARTS = (
    Part("quiet", 90.0, 15.0, 15.0),
    Part("step", 90.0, 60.0, 60.0),
    Part("ramp", 120.0, 60.0, 150.0),
    Part("peak", 40.0, 150.0, 150.0),
    Part("quiet again", 440.0, 15.0, 15.0),
)


def starts(parts: Sequence[Part], seed: int) -> tuple[float, ...]:
    """Of the calls, in seconds: a Poisson process whose rate moves, by thinning."""
    rng = np.random.default_rng(seed)
    found: list[float] = []
    begun = 0.0
    for part in parts:
        most = max(part.first, part.last)
        times = np.sort(rng.uniform(0.0, part.seconds, rng.poisson(most * part.seconds)))
        rates = part.first + (part.last - part.first) * times / part.seconds
        found += list(begun + times[rng.uniform(0.0, most, len(times)) < rates])
        begun += part.seconds
    return tuple(found)


def write_model(repository: Path) -> None:
    """The model, as a repository of Triton has it."""
    version = repository / "digits" / "1"
    version.mkdir(parents=True)
    shutil.copyfile(ROOT / "model_repo" / "digits" / "2" / "model.onnx", version / "digits.onnx")
    (version / "model.py").write_text(_CODE)
    (version.parent / "config.pbtxt").write_text(_CONFIG)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the gateway listens."""

    http: int
    grpc: int
    metrics: int
    admin: int


def gateway(programs: Programs, folder: Path, ports: Ports) -> None:
    """Start it, and wait until the model can be called."""
    write_model(folder / "repository")
    words = (
        *(str(BIN / "servegate"), "up", "--autoscale", f"{LEAST}..{MOST}"),
        *("--state", str(folder / "state"), "--model-repo", str(folder / "repository")),
        *("--http-port", str(ports.http), "--grpc-port", str(ports.grpc)),
        *("--metrics-port", str(ports.metrics), "--admin-port", str(ports.admin)),
    )
    process = programs.start("gateway", words)
    programs.wait("gateway", process, partial(listening, ports.http, ports.admin))
    until_ready(f"{url(ports.http)}/v2/models/digits/ready", time.monotonic())
    programs.wait("gateway", process, partial(_is_hinted, ports))


def load(programs: Programs, folder: Path, ports: Ports, times: Sequence[float]) -> Any:
    """Start the generator, which plays the trace; the running process."""
    trace = folder / "trace.csv"
    trace.write_text("seconds\n" + "".join(f"{one:.4f}\n" for one in times))
    words = (
        *(str(BIN / "servegate"), "load", "run", "--model", "digits", "--name", "loop"),
        *("--arrivals", f"trace:{trace}", "--out", str(folder / "reports"), "--warm-up", "0s"),
        *("--url", url(ports.http), "--grpc-url", f"127.0.0.1:{ports.grpc}"),
        *("--admin-url", url(ports.admin), "--metrics-url", url(ports.metrics)),
    )
    return programs.start("load", words)


def watched(
    process: "subprocess.Popen[bytes]", ports: Ports, begun: float
) -> Iterator[dict[str, Any]]:
    """The hint, again and again until the load ends; `second` is since `begun`."""
    while process.poll() is None:
        with contextlib.suppress(OSError):
            told = _json(f"{url(ports.admin)}/api/hints/default")
            yield {"second": time.time() - begun, **{name: told[name] for name in _TOLD}}
        time.sleep(_EVERY)


def run(folder: Path, parts: Sequence[Part], seed: int) -> dict[str, Any]:
    """One run; what it found."""
    ports = Ports(*free_ports(4))
    with Programs(folder) as programs:
        gateway(programs, folder, ports)
        times, begun = starts(parts, seed), time.time()
        process = load(programs, folder, ports, times)
        hints = []
        for one in watched(process, ports, begun):
            hints.append(one)
            if len(hints) % 30 == 0:
                print(_line(one), file=sys.stderr, flush=True)
    report = read("loop", folder / "reports")
    return page(report, hints, begun, parts, seed)


def page(
    report: LoadReport,
    hints: Sequence[Mapping[str, Any]],
    begun: float,
    parts: Sequence[Part],
    seed: int,
) -> dict[str, Any]:
    """The JSON form: seconds count from the first call that was to start."""
    (only,) = report.runs
    offset = datetime.fromisoformat(report.begun).timestamp() - begun
    whole = total(only)
    return {
        "date": today(),
        "machine": machine.describe(),
        "model": {"fixed": FIXED, "per_row": PER_ROW, "largest": LARGEST},
        "bounds": [LEAST, MOST],
        "parts": [dataclasses.asdict(one) for one in parts],
        "seed": seed,
        "calls": whole.calls,
        "failed": whole.failed,
        "errors": dict(whole.errors),
        "latency": {"p50": whole.latency.p50, "p99": whole.latency.p99},
        "load": [
            {
                "second": one.second,
                "intended": one.intended,
                "right": one.right,
                "failed": one.failed,
                "p99": one.p99,
            }
            for one in over_time(only)
        ],
        "hints": [{**one, "second": one["second"] - offset} for one in changes(hints)],
    }


def changes(hints: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Those that say something else than the one before them, and the last."""
    for number, one in enumerate(hints):
        before = hints[number - 1] if number else {}
        is_last = number == len(hints) - 1
        if is_last or {**one, "second": 0} != {**before, "second": 0}:
            yield one


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder in which to keep the logs and the report")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = asked.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sg-bench-")))
        folder.mkdir(parents=True, exist_ok=True)
        found = run(folder, PARTS, asked.seed)
    path = FOLDER / f"autoscaling-{today()}.json"
    write_page(path, found)
    for name, picture in pictures(found).items():
        (IMAGES / name).write_text(picture)
    print("\n".join(table(found)))
    print(f"\nwrote {path.relative_to(ROOT)} and its pictures")
    is_scaled = len({one["ready"] for one in found["hints"]}) > 1
    return 0 if is_scaled and not found["failed"] else 1


def _json(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return json.loads(answer.read())


def _is_hinted(ports: Ports) -> bool:
    """Whether there is a hint that knows of the first replica."""
    with contextlib.suppress(OSError):
        return bool(_json(f"{url(ports.admin)}/api/hints/default")["ready"])
    return False


def _line(told: Mapping[str, Any]) -> str:
    """What is so now, for somebody who waits."""
    reasons = ", ".join(one["code"] for one in told["reasons"])
    return (
        f"{told['second']:5.0f} s: {told['ready']} ready, {told['starting']} starting, "
        f"{told['desired']} desired, demand {told['demand']}: {reasons}"
    )


if __name__ == "__main__":
    sys.exit(main())
