"""`servegate model push` of half a gigabyte on loopback, beside `cp` and `sha256sum` of its file.

Every round makes new content that nothing can compress, takes the yardstick before or after the
push in turns, and pushes once more what is there already. The last push is killed: its client with
signal 9 after a third, the control plane after two thirds. What then was sent beyond the file's own
bytes was sent twice. The gateway's disk is synced, the yardstick's is not.

Prints a table and writes `loadtests/results/push-*.json`; the exit status is 1 when a digest is
wrong, or more than `--limit` of the bytes were sent twice.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.bench import machine
from loadtests.bench.results import FOLDER, today, write_page
from loadtests.bench.rounds import Ratio
from loadtests.bench.start import BIN, ROOT, free_ports, until_ready
from loadtests.bench.started import Programs

MIB = 1 << 20
MODEL = "pushed"
WEIGHTS = "weights.bin"
MODEL_FOLDER = ROOT / "model_repo" / "digits"  # is pushed with the weights beside its version 1


class Wrong(Exception):
    """A push did not do what it should have done."""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of the yardstick, of the push, and of the push of what was there already."""

    yardstick: float
    push: float
    again: float


@dataclass(frozen=True, slots=True)
class Killed:
    """A push whose client and server were killed; `had` is what the server had from the first."""

    total: int
    had: int
    sent: int

    @property
    def twice(self) -> float:
        """The share of the bytes that was sent a second time."""
        return max(self.had + self.sent - self.total, 0) / self.total


@dataclass(frozen=True, slots=True)
class Results:
    """One run."""

    date: str
    machine: str
    mib: int
    rounds: tuple[Round, ...]
    killed: Killed

    @property
    def ratio(self) -> Ratio:
        """Of the push to the yardstick."""
        found = [one.push / one.yardstick for one in self.rounds]
        return Ratio(statistics.median(found), min(found), max(found))

    def table(self) -> str:
        """What the terminal gets."""
        lines = [f"{'':18}{'seconds':>9}{'MiB/s':>8}"]
        for title, name in (("cp + sha256sum", "yardstick"), ("push", "push"), ("again", "again")):
            seconds = statistics.median(getattr(one, name) for one in self.rounds)
            rate = "" if name == "again" else f"{self.mib / seconds:8.0f}"
            lines.append(f"{title:18}{seconds:9.2f}{rate}")
        ratio = self.ratio
        lines.append(f"ratio {ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})")
        killed = self.killed
        lines.append(f"client and server killed: {killed.twice:.2%} of the bytes sent twice")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A `servegate up` to push to."""

    admin: str
    state: Path

    def command(self, source: Path, *flags: str) -> list[str]:
        """The push of a folder."""
        push = (str(BIN / "servegate"), "model", "push", str(source), MODEL)
        return [*push, "--json", "--admin-url", self.admin, *flags]

    def push(self, source: Path) -> tuple[float, dict[str, Any]]:
        """Push until it has its number; seconds, and the last event."""
        begun = time.monotonic()
        done = subprocess.run(self.command(source), capture_output=True, text=True)
        took = time.monotonic() - begun
        if done.returncode:
            raise Wrong(done.stdout + done.stderr)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return took, result

    def version(self, number: int) -> dict[str, Any]:
        """A version as the admin API shows it, once there is nothing more to do for it."""
        url = f"{self.admin}/api/models/{MODEL}/versions/{number}"
        while True:
            with urllib.request.urlopen(url) as answer:
                shown: dict[str, Any] = json.load(answer)
            if shown["state"] in ("ready", "serving", "failed"):
                return shown
            time.sleep(0.1)

    def staged(self) -> int:
        """Bytes of unfinished uploads."""
        folder = self.state / "uploads" / "staging"
        return sum(path.stat().st_size for path in folder.rglob("*"))

    def kill_control(self) -> None:
        """Signal 9 for the control plane, which is started again."""
        page = json.loads((self.state / "children.json").read_text())
        (pid,) = (entry["pid"] for entry in page["children"] if entry["name"] == "control")
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def fresh(folder: Path, mib: int) -> Iterator[tuple[Path, str]]:
    """A model folder with content of its own, gone at the end; and the digest of its weights."""
    source = folder / "source"
    shutil.copytree(MODEL_FOLDER, source, ignore=shutil.ignore_patterns("2"))
    digest = hashlib.sha256()
    with (source / "1" / WEIGHTS).open("wb") as file:
        for _ in range(mib):
            piece = os.urandom(MIB)
            digest.update(piece)
            file.write(piece)
        os.fsync(file.fileno())
    try:
        yield source, digest.hexdigest()
    finally:
        shutil.rmtree(source)


def yardstick(source: Path, folder: Path) -> float:
    """Seconds of `cp` and `sha256sum` of the weights."""
    copy = folder / "copy"
    begun = time.monotonic()
    subprocess.run(["cp", str(source / "1" / WEIGHTS), str(copy)], check=True)
    subprocess.run(["sha256sum", str(copy)], check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - begun
    copy.unlink()
    return took


def one_round(gateway: Gateway, folder: Path, mib: int, *, is_first: bool) -> Round:
    """The yardstick and the push, or the other way round; and the push again."""
    with fresh(folder, mib) as (source, right):
        before = yardstick(source, folder) if is_first else 0.0
        took, result = gateway.push(source)
        shown = gateway.version(result["version"])
        require_digest(shown, right)
        again, repeated = gateway.push(source)
        if (repeated["version"], repeated["sent"]) != (result["version"], 0):
            raise Wrong(f"the second push did not find the existing version: {repeated}")
        return Round(before or yardstick(source, folder), took, again)


def killed_push(gateway: Gateway, folder: Path, mib: int) -> Killed:
    """A push that loses its client, and then its server."""
    with fresh(folder, mib) as (source, right):
        total = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        with _started(gateway.command(source)) as client:
            _read_until(client, total // 3)
            client.kill()
            client.wait()
        had = gateway.staged()
        with _started(gateway.command(source)) as client:
            _read_until(client, total * 2 // 3)
            gateway.kill_control()
            rest, _ = client.communicate(timeout=300)
        if client.returncode:
            raise Wrong(rest)
        result = json.loads(rest.splitlines()[-1])
        require_digest(gateway.version(result["version"]), right)
        return Killed(total, had, result["sent"])


def require_digest(shown: dict[str, Any], right: str) -> None:
    """`Wrong` when the version's weights are not those that were pushed."""
    found = {Path(file["path"]).name: file["sha256"] for file in shown["files"]}
    if shown["state"] == "failed":
        raise Wrong(shown["reason"])
    if found[WEIGHTS] != right:
        raise Wrong(f"the digest of the weights is {found[WEIGHTS]}, not {right}")


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _read_until(client: "subprocess.Popen[str]", done: int) -> None:
    """Until so many bytes of the upload are on the server."""
    assert client.stdout is not None
    for line in client.stdout:
        event = json.loads(line)
        is_sending = event["type"] == "progress" and event["stage"] == "uploading"
        if is_sending and event["done"] >= done:
            return
    raise Wrong("the push ended before it was killed")


def measure(folder: Path, mib: int, rounds: int) -> Results:
    """All rounds against one gateway, and the push that is killed."""
    http, grpc, metrics, admin = free_ports(4)
    gateway = Gateway(f"http://127.0.0.1:{admin}", folder / "state")
    with Programs(folder) as programs:
        programs.start(
            "gateway",
            [
                *(str(BIN / "servegate"), "up", "--state", str(gateway.state), "--model-repo", ""),
                *("--http-port", str(http), "--grpc-port", str(grpc), "--quarantine", "off"),
                *("--metrics-port", str(metrics), "--admin-port", str(admin)),
            ],
        )
        until_ready(f"{gateway.admin}/readyz", time.monotonic())
        found = [
            one_round(gateway, folder, mib, is_first=number % 2 == 0) for number in range(rounds)
        ]
        killed = killed_push(gateway, folder, mib)
    return Results(today(), machine.describe(), mib, tuple(found), killed)


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--limit", type=float, default=0.05, help="allowed share of bytes sent twice"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        try:
            results = measure(Path(folder), chosen.mib, chosen.rounds)
        except Wrong as wrong:
            print(f"error: {wrong}", file=sys.stderr)
            return 1
    print(results.table())
    path = FOLDER / f"push-{time.strftime('%Y%m%d-%H%M%S')}.json"
    write_page(path, dataclasses.asdict(results) | {"twice": results.killed.twice})
    print(f"written: {path}")
    return 0 if results.killed.twice <= chosen.limit else 1


if __name__ == "__main__":
    sys.exit(main())
