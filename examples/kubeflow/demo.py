"""The demo: a real Triton and a real gateway, and three runs of the digits pipeline.

    make pipeline-demo

The first model gets the label; a better one takes it over; a worse one is kept back, and the label
stays. Ctrl-C, a closed terminal or a kill stop everything that was started.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
HERE = Path(__file__).resolve().parent
MODEL, LABEL = "digits", "stable"
PATIENCE = 120.0  # seconds
GATED = 7

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the pipeline: what is trained, and what must come of it."""

    title: str
    parameters: tuple[str, ...]
    status: int
    version: int  # that has the label afterwards


RUNS = (
    Run("a first model, small and hardly trained", ("epochs=4", "width=4"), 0, 1),
    Run("a better one: wider, and trained for longer", ("epochs=20", "width=16"), 0, 2),
    Run("a worse one: narrow again", ("epochs=6", "width=4"), GATED, 2),
)


def main() -> int:
    """Start, run the pipeline three times, and show where to look."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--exit", action="store_true", help="end after the last run")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    try:
        with workplace() as folder, gateway(folder) as urls:
            report = walk(folder, urls)
            page = f"{urls['admin_url']}/models/{MODEL}"
            say(f"\n{MODEL}:{LABEL} is version {RUNS[-1].version}; the model: {page}")
            say("its evaluation beside the version before" + ending(chosen.exit))
            say(report)
            if not chosen.exit:
                signal.pause()
    except KeyboardInterrupt:
        pass
    except (Broken, OSError) as error:
        say(f"error: {error}")
        return 1
    return 0


def ending(is_over: bool) -> str:
    """How the line before the last goes on."""
    return ":" if is_over else " (Ctrl-C stops everything):"


class Broken(Exception):
    """The demo did not go as it should; the sentence is for people."""


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder for all that is written, also by what is killed; gone at the end."""
    with tempfile.TemporaryDirectory(prefix="servegate-pipeline-") as folder:
        os.environ["TMPDIR"] = folder
        yield Path(folder)


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[dict[str, str]]:
    """A gateway with one Triton and no model yet; its URLs, by the pipeline's parameters."""
    http, grpc, metrics, admin = free_ports(4)
    ports = ("--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics)
    state = folder / "state"
    words = ("--model-repo", "", "--state", str(state), *ports, "--admin-port", admin)
    os.environ["SERVEGATE_STATE"] = str(state)  # where the commands of the steps find the secret
    log = folder / "gateway.log"
    say("starting a Triton and the gateway")
    with started(str(BIN / "servegate"), "up", *words, "--log-level", "warning", log=log) as up:
        wait_ready(up, log)
        yield {
            "admin_url": f"http://127.0.0.1:{admin}",
            "data_url": f"http://127.0.0.1:{http}",
            "grpc_url": f"127.0.0.1:{grpc}",
        }


def walk(folder: Path, urls: dict[str, str]) -> str:
    """The runs, one after the other; the link to the evaluation that moved the label last."""
    given = tuple(f"{name}={url}" for name, url in urls.items())
    for number, one in enumerate(RUNS, 1):
        say(f"\nrun {number}: {one.title} ({', '.join(one.parameters)})")
        words = ("digits", *one.parameters, "minimum=0.5", *given)
        out = folder / f"run-{number}"
        with started(sys.executable, str(HERE / "run.py"), *words, "--out", str(out)) as run:
            status = run.wait()
        if status != one.status:
            raise Broken(f"the run ended with status {status}, not {one.status}\n{tail(out)}")
        labels = ask(f"{urls['admin_url']}/api/models/{MODEL}")["labels"]
        if labels != {LABEL: one.version}:
            raise Broken(f"the labels are {labels}, and {LABEL} should be version {one.version}")
        say(f"          {MODEL}:{LABEL} is version {one.version}")
    (newest, *_) = [each for each in ask(f"{urls['admin_url']}/api/evaluations") if each["b"]]
    report = f"{urls['admin_url']}/evaluations/{newest['id']}"
    urllib.request.urlopen(report, timeout=30).close()  # raises unless it answers 200
    return report


@contextlib.contextmanager
def started(*words: str, log: Path | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a group of its own, which ends with the block, or with this process."""
    with contextlib.ExitStack() as files:
        out = files.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=True,
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        try:
            yield process
        finally:
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process with its whole group; what does not end by itself in time is killed."""
    for number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + patience
        while is_there(process) and time.monotonic() < until:
            time.sleep(0.05)


def is_there(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process or another one of its group still runs."""
    if process.poll() is None:
        return True
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_ready(up: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the gateway says so; `Broken` with what it said when it does not."""
    until = time.monotonic() + PATIENCE
    while not any(line.startswith("ready") for line in log.read_text().splitlines()):
        if up.poll() is not None or time.monotonic() > until:
            raise Broken(f"the gateway did not start\n{log.read_text()}")
        time.sleep(0.2)


def ask(url: str) -> Any:
    """JSON from the admin API."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def tail(out: Path) -> str:
    """The end of a run's log."""
    log = out / "run.log"
    return "\n".join(log.read_text().splitlines()[-12:]) if log.is_file() else ""


def free_ports(count: int) -> list[str]:
    """Ports that nobody has at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


def say(text: str) -> None:
    """One line for people, in the order in which things happen."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
