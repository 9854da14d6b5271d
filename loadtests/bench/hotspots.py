"""Where one worker's time goes under load: functions by their share, and a file for a flame graph.

    python -m loadtests.bench.hotspots [ROW]          http-64B unless another row is named

Two samplers look at the same worker, one after the other: py-spy at the Python functions, and perf,
where it is installed, at the functions in C and in the kernel. The stacks are written in the format
of https://www.speedscope.app. Sampling slows the worker down a little; shares stay comparable.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.bench import accounting, machine, rows
from loadtests.bench.gateway import start_gateway
from loadtests.bench.generators import Generator
from loadtests.bench.results import FOLDER
from loadtests.bench.rows import Row
from loadtests.bench.start import ROOT
from loadtests.bench.started import Programs
from loadtests.bench.targets import Target
from loadtests.bench.upstreams import start_cheap, start_tritons

RATE = 400  # samples a second


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack, outermost function first, and how often it was seen."""

    frames: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Share:
    """A function's part of all samples: in itself, and with all that it calls."""

    function: str
    own: float
    whole: float


def parse(text: str) -> tuple[Stack, ...]:
    """Read py-spy's collapsed stacks, `thread (7): MainThread;outer;inner 12` in each line.

    Only the main thread counts: others wait in C, which looks like work from outside.
    """
    stacks = []
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        thread, *inner = frames.split(";")
        if inner and thread.endswith(": MainThread") and count.isdigit():
            stacks.append(Stack(tuple(inner), int(count)))
    return tuple(stacks)


def shares(stacks: Sequence[Stack]) -> tuple[Share, ...]:
    """All functions, those first that take the most themselves; a recursion counts once."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for stack in stacks:
        own[_function(stack.frames[-1])] += stack.count
        for function in {_function(frame) for frame in stack.frames}:
            whole[function] += stack.count
    total = sum(own.values()) or 1
    found = [Share(name, own[name] / total, count / total) for name, count in whole.items()]
    return tuple(sorted(found, key=lambda share: (-share.own, -share.whole)))


def speedscope(stacks: Sequence[Stack], name: str) -> dict[str, Any]:
    """The stacks in speedscope's file format, as one sampled profile."""
    numbers: dict[str, int] = {}
    samples = [
        [numbers.setdefault(frame, len(numbers)) for frame in stack.frames] for stack in stacks
    ]
    weights = [stack.count for stack in stacks]
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": frame} for frame in numbers]},
        "profiles": [profile],
    }


def table(found: Sequence[Share], rows: int = 25) -> str:
    """The functions that take the most."""
    lines = [f"{'own':>7}{'whole':>8}  function"]
    lines += [f"{one.own:7.1%}{one.whole:8.1%}  {one.function}" for one in found[:rows]]
    return "\n".join(lines)


def sample_python(pid: int, seconds: float, folder: Path) -> tuple[Stack, ...]:
    """With py-spy, only while the worker runs (waiting for I/O is no work)."""
    brought = ROOT / ".venv-bench" / "bin" / "py-spy"
    program = str(brought) if brought.exists() else shutil.which("py-spy")
    if program is None:
        raise SystemExit("py-spy is not installed; try: make deps-bench")
    path = folder / "stacks.txt"
    argv = [program, "record", "--pid", str(pid), "--duration", str(int(seconds))]
    argv += ["--rate", str(RATE), "--threads", "--format", "raw", "--output", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"py-spy failed: {done.stderr}")
    return parse(path.read_text())


def sample_native(pid: int, seconds: float, folder: Path) -> str:
    """With perf: its own table; empty when it is not installed or not allowed."""
    if shutil.which("perf") is None:
        return ""
    path = folder / "perf.data"
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(RATE), "-p", str(pid)]
    subprocess.run([*record, "-o", str(path), "--", "sleep", str(seconds)], capture_output=True)
    report = ["perf", "report", "-i", str(path), "--stdio", "-q", "--percent-limit", "0.7"]
    done = subprocess.run(
        [*report, "--sort", "dso,symbol"], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    lines = [line.rstrip(" -") for line in done.stdout.splitlines() if line.strip()]
    return "\n".join(lines[:40])


def profile(row: Row, seconds: float) -> tuple[tuple[Stack, ...], str]:
    """Start what the row needs, and sample the gateway's worker under its load."""
    cores = machine.cores()
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as name, Programs(Path(name)) as programs:
        folder = Path(name)
        folder.chmod(0o755)
        upstreams = start_tritons(programs, cores=cores, folder=folder)
        if row.upstream == "cheap":
            upstreams = start_cheap(programs, upstreams, cores=cores, folder=folder)
        target = start_gateway(programs, upstreams, cores=cores, folder=folder).target
        load = rows.generator(row, folder, cores.load)
        return _sampled(load, target, row, seconds, folder)


def _sampled(
    load: Generator, target: Target, row: Row, seconds: float, folder: Path
) -> tuple[tuple[Stack, ...], str]:
    assert target.pid is not None
    worker = accounting.tree(target.pid).workers[0]
    load.run(target.url(row.protocol), 1.0)
    running = threading.Thread(
        target=load.run, args=(target.url(row.protocol), 2 * seconds + 4), daemon=True
    )
    running.start()
    try:
        return sample_python(worker, seconds, folder), sample_native(worker, seconds, folder)
    finally:
        running.join()
        load.close()


def _function(frame: str) -> str:
    """Without the line number, which py-spy puts behind the file: `run (loop.py:12)`."""
    before, colon, after = frame.rpartition(":")
    return before + ")" if colon and after.rstrip(")").isdigit() else frame


def main() -> int:
    """Profile, print the tables and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", nargs="?", default="http-64B")
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="duration of each sampler in seconds"
    )
    chosen = parser.parse_args()
    try:
        (row,) = rows.choose([chosen.row], quick=False)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    stacks, native = profile(row, chosen.seconds)
    print(f"{row.title}: Python functions of one worker\n{table(shares(stacks))}")
    if native:
        print(f"\n{row.title}: native functions of the same worker (perf)\n{native}")
    path = FOLDER / f"profile-{row.name}.speedscope.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(speedscope(stacks, row.name)))
    print(f"\nflame graph: open {path} in https://www.speedscope.app")
    return 0


if __name__ == "__main__":
    sys.exit(main())
