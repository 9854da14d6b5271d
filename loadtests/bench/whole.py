"""The whole comparison: upstreams, proxies and gateway are started, checked, measured and ended."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from loadtests.bench import gateway, machine, tables
from loadtests.bench.footprint import Footprint, footprint, further
from loadtests.bench.gateway import Gateway, start_gateway
from loadtests.bench.generators import Wrk
from loadtests.bench.measuring import Measured, Plan, measure
from loadtests.bench.payloads import binary_tensor
from loadtests.bench.peers import envoy_binary, start_peers
from loadtests.bench.results import Results, today
from loadtests.bench.rows import Row
from loadtests.bench.started import Programs
from loadtests.bench.streaming import Streamed, stream
from loadtests.bench.targets import DIRECT, Target
from loadtests.bench.upstreams import Upstreams, start_cheap, start_tritons
from loadtests.bench.verifying import Wrong, check_bodies, check_shares

SEVERAL = 3  # workers, to see what each further one adds
MIB = 1 << 20


class Comparison:
    """One run in a folder of its own; what it finds collects here."""

    def __init__(self, plan: Plan, rows: Sequence[Row], *, extras: bool, folder: Path) -> None:
        self._plan, self._rows, self._extras, self._folder = plan, rows, extras, folder
        self._cores = machine.cores()
        self._measured: list[Measured] = []
        self._streamed: list[Streamed] = []
        self._footprints: list[Footprint] = []
        self._shares: dict[int, int] = {}
        self._problems: list[str] = []

    def run(self) -> Results:
        """Everything, first in front of the cheap upstreams, then of the Tritons."""
        with Programs(self._folder) as programs:
            tritons = start_tritons(programs, cores=self._cores, folder=self._folder)
            for name in ("cheap", "triton"):
                rows = [row for row in self._rows if row.upstream == name]
                if rows or (self._extras and name == "cheap"):
                    self._stage(name, tritons, rows)
        return Results(
            date=today(),
            machine=machine.describe(),
            software=software(),
            plan=self._plan,
            duties=gateway.DUTIES,
            measured=tuple(self._measured),
            streamed=tuple(self._streamed),
            footprints=tuple(self._footprints),
            shares=self._shares,
            problems=tuple(self._problems),
        )

    def _stage(self, name: str, tritons: Upstreams, rows: Sequence[Row]) -> None:
        """All proxies in front of one kind of upstream."""
        folder = self._folder / name
        folder.mkdir()
        with Programs(folder) as programs:
            upstreams = tritons
            if name == "cheap":
                upstreams = start_cheap(programs, tritons, cores=self._cores, folder=folder)
            ours = start_gateway(programs, upstreams, cores=self._cores, folder=folder)
            peers = start_peers(programs, upstreams, cores=self._cores, folder=folder)
            targets = (_direct(upstreams), *peers, ours.target)
            self._check(targets, rows, echoes_grpc=name == "triton")
            for row in rows:
                self._row(row, targets)
            if rows:
                self._split(ours)
            if name == "cheap" and self._extras:
                self._stream(targets)
                self._memory(programs, upstreams, targets)

    def _check(self, targets: Sequence[Target], rows: Sequence[Row], *, echoes_grpc: bool) -> None:
        largest = max((max(row.size, row.answer) for row in rows), default=4 * MIB)
        for target in targets:
            try:
                check_bodies(target, largest=largest, echoes_grpc=echoes_grpc)
            except Wrong as wrong:
                self._problem(str(wrong))

    def _row(self, row: Row, targets: Sequence[Target]) -> None:
        try:
            one = measure(row, targets, self._plan, cores=self._cores, folder=self._folder)
        except (RuntimeError, subprocess.SubprocessError) as error:
            self._problem(f"{row.name}: {error}")
            return
        print(tables.text(one), end="\n\n", flush=True)
        self._measured.append(one)
        for line in one.lines:
            if line.failed:
                self._problem(f"{row.name}: {line.failed} calls failed through {line.target}")

    def _split(self, ours: Gateway) -> None:
        counts = ours.counts()
        for version, calls in counts.items():
            self._shares[version] = self._shares.get(version, 0) + calls
        try:
            check_shares(counts, gateway.SHARES)
        except Wrong as wrong:
            self._problem(str(wrong))

    def _stream(self, targets: Sequence[Target]) -> None:
        for direction in ("request", "answer"):
            for target in targets:
                try:
                    one = stream(target, direction)
                except (Wrong, OSError) as error:
                    self._problem(f"1 GiB {direction}: {error}")
                    continue
                self._streamed.append(one)
                print(tables.streamed(one), flush=True)

    def _memory(self, programs: Programs, upstreams: Upstreams, targets: Sequence[Target]) -> None:
        """Of fresh gateways after some calls; of the others as they are after the rows."""
        for target in targets[:-1]:
            if found := footprint(target):
                self._footprints.append(found)
        one, several = (self._warm(programs, upstreams, count) for count in (1, SEVERAL))
        if one and several:
            self._footprints.append(replace(one, further=further(one, several, SEVERAL)))
        for found in self._footprints:
            print(tables.footprint(found), flush=True)

    def _warm(self, programs: Programs, upstreams: Upstreams, workers: int) -> Footprint | None:
        folder = self._folder / f"memory-{workers}"
        folder.mkdir()
        made = start_gateway(programs, upstreams, cores=self._cores, folder=folder, workers=workers)
        Wrk(binary_tensor(16 << 10), folder, 64, self._cores.load).run(made.target.http, 2)
        return footprint(made.target)

    def _problem(self, sentence: str) -> None:
        print(f"problem: {sentence}", file=sys.stderr, flush=True)
        self._problems.append(sentence)


def compare(plan: Plan, rows: Sequence[Row], *, extras: bool) -> Results:
    """Run the comparison; `extras` are the streamed bodies and the memory."""
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        Path(folder).chmod(0o755)
        return Comparison(plan, rows, extras=extras, folder=Path(folder)).run()


def software() -> tuple[str, ...]:
    """The versions of what is compared."""
    commands = (("nginx", "-v"), ("haproxy", "-v"), (envoy_binary() or "envoy", "--version"))
    found = [f"Python {sys.version.split()[0]}"]
    for command in commands:
        with suppress(OSError):
            done = subprocess.run(command, capture_output=True, text=True)
            version = re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr)
            name = Path(command[0]).name
            found.append(f"{name} {version[0]}" if version else name)
    return tuple(found)


def _direct(upstreams: Upstreams) -> Target:
    http, grpc = upstreams.http[0], upstreams.grpc[0]
    return Target(DIRECT, f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}")
