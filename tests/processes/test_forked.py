"""Forked children are kept running, end with their parent, and share nothing that must differ."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from living import ends, lives

from serve.processes import Backoff
from serve.processes.forked import ForkedChild

PATIENCE = 20.0  # seconds; a bound for what takes milliseconds

HEAD = """
import logging, os, random, secrets, signal, sys, threading, uuid
from serve.processes import Backoff, Forked
logging.basicConfig(format="%(message)s", stream=sys.stdout)

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


class Parent:
    """A process that keeps forked children; what all of them say comes as lines."""

    def __init__(self, work: str, *, count: int, grace: float) -> None:
        names = tuple(f"one-{number}" for number in range(count))
        keep = (
            f"\nForked({names!r}, work, grace={grace}, backoff=Backoff(0.01, 0.02)).keep()"
            "\nsay('kept')"
        )
        self.process = subprocess.Popen(
            (sys.executable, "-c", HEAD + work + keep),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        self.said = ""

    def line(self, *words: str) -> list[str]:
        """The words of the next line that begins with these."""
        while True:
            line, end, rest = self.said.partition("\n")
            if not end:
                self.said += self._read()
                continue
            self.said = rest
            if line.split()[: len(words)] == list(words):
                return line.split()

    def pids(self, count: int) -> dict[str, int]:
        """The children that announce themselves next, as "up NUMBER PID"."""
        lines = [self.line("up") for _ in range(count)]
        return {number: int(pid) for _, number, pid in lines}

    def signal(self, number: int) -> int:
        """Send a signal to the parent alone: its exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def _read(self) -> str:
        ready, _, _ = select.select([self.output], [], [], PATIENCE)
        assert ready, f"nothing more came after {self.said!r}"
        data = os.read(self.output, 65536)
        assert data, f"the parent and its children ended after {self.said!r}"
        return data.decode()


@contextmanager
def parent(work: str, *, count: int = 2, grace: float = PATIENCE) -> Iterator[Parent]:
    one = Parent(work, count=count, grace=grace)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()
        one.process.stdout.close()  # type: ignore[union-attr]


WAITS = """
def work(number):
    say("up", number, os.getpid())
    signal.pause()
"""

DRAINS = """
def work(number):
    def leave(*_):
        say("drained", number)
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    say("up", number, os.getpid())
    while True:
        signal.pause()
"""

STUBBORN = """
def work(number):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("up", number, os.getpid())
    while True:
        signal.pause()
"""


def test_children_that_are_killed_are_started_again_and_the_others_are_left_alone() -> None:
    with parent(WAITS) as one:
        pids = one.pids(2)
        assert set(pids) == {"0", "1"}
        os.kill(pids["1"], signal.SIGKILL)
        told = one.line("one-1")
        assert told[1] == f"({pids['1']})" and "(SIGKILL);" in told
        again = one.pids(1)
        assert set(again) == {"1"} and again["1"] != pids["1"]
        assert lives(pids["0"])
        for pid in (pids | again).values():  # all at once
            os.kill(pid, signal.SIGKILL)
        assert set(one.pids(2)) == set(pids)


ENDS = """
def work(number):
    say("up", number, os.getpid())
    if number == 1:
        sys.exit(3)
    if number == 2:
        raise LookupError('no such thing')
"""


def test_a_child_that_ends_is_started_again_and_why_it_ended_is_told_with_its_name() -> None:
    with parent(ENDS, count=1) as one:
        assert len({one.pids(1)["0"] for _ in range(3)}) == 3
    with parent(ENDS, count=2) as one:
        assert "exit status 3; it restarts" in " ".join(one.line("one-1"))
    with parent(ENDS, count=3) as one:
        crashed = one.line("one-2")
        assert crashed[2:] == ["crashed"]
        assert one.line("LookupError:", "no", "such", "thing")
        assert "status 1; it restarts in" in " ".join(one.line("one-2", crashed[1]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_lets_every_child_finish(number: int) -> None:
    with parent(DRAINS) as one:
        pids = one.pids(2)
        assert one.signal(number) == 0
        assert {one.line("drained")[1] for _ in pids} == {"0", "1"}
        one.line("kept")
        assert not any(lives(pid) for pid in pids.values())


def test_a_signal_to_the_whole_group_starts_nobody_again() -> None:
    with parent(WAITS, count=3) as one:
        one.pids(3)
        os.killpg(one.process.pid, signal.SIGTERM)
        assert one.process.wait(PATIENCE) == 0
        assert one.said + one._read() == "kept\n"


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    with parent(STUBBORN, count=1, grace=0.05) as one:
        pids = one.pids(1)
        assert one.signal(signal.SIGTERM) == 0
        assert "did not stop in time" in " ".join(one.line("one-0"))
        one.line("kept")
        assert ends(pids["0"], PATIENCE)


def test_children_die_when_their_parent_is_killed() -> None:
    with parent(WAITS) as one:
        pids = one.pids(2)
        one.signal(signal.SIGKILL)
        assert all(ends(pid, PATIENCE) for pid in pids.values())


def test_children_draw_different_numbers_and_have_no_signal_blocked_and_no_further_thread() -> None:
    asks = """
random.random()
def work(number):
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    say("state", len(mask), len(os.listdir("/proc/self/task")))
    say("drew", random.random(), uuid.uuid4(), secrets.token_hex(), random.Random().random())
    signal.pause()
"""
    with parent(asks, count=3) as one:
        assert one.line("state") == ["state", "0", "1"]
        drawn = [one.line("drew")[1:] for _ in range(3)]
        assert all(len(set(column)) == 3 for column in zip(*drawn, strict=True))
        assert len(list(Path(f"/proc/{one.process.pid}/task").iterdir())) == 1


def test_what_the_parent_had_not_yet_written_is_written_once() -> None:
    work = "\nprint('before', end=' ')\ndef work(number): print('up', number, flush=True)"
    with parent(work + "; signal.pause()") as one:
        assert one.line("before", "up") and one.line("up")


def test_delays_double_and_a_healthy_life_forgives_earlier_failures() -> None:
    place, backoff = ForkedChild("one"), Backoff(first=1, longest=5, healthy=30)
    delays = []
    for life in (0.1, 0.1, 0.1, 0.1, 29.9, 30.0, 0.1):
        place.start(7, 100.0)
        delays.append(place.end(100.0 + life, backoff))
        assert place.pid is None and place.due == 100.0 + life + delays[-1]
    assert delays == [1, 2, 4, 5, 5, 1, 2]
    never = ForkedChild("two")  # could not be started, which counts as a failure
    assert [never.end(now, backoff) for now in (100.0, 200.0, 300.0)] == [1, 2, 4]
