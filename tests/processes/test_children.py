"""Child processes: their lines, their ends, their restarts, and what a killed parent leaves."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from living import ends, lives
from loops import in_each_loop

from serve.app.up import CONTROL_BACKOFF
from serve.core.errors import CannotStart
from serve.processes import (
    Backoff,
    Exit,
    Hopeless,
    Ledger,
    LedgerEntry,
    ProcessCondition,
    Program,
    Supervised,
    SupervisedState,
    hold_lock,
    spawn,
    sweep_shared_memory,
)
from serve.processes.children import LINE_LIMIT
from serve.processes.table import start_time

ROOT = Path(__file__).parents[2]
PATIENCE = 10.0  # seconds; a bound for what takes milliseconds


def python(code: str) -> Program:
    return Program("child", (sys.executable, "-S", "-c", code), grace=PATIENCE)


def shell(script: str) -> Program:
    return Program("child", ("/bin/sh", "-c", script), env={"PATH": os.defpath}, grace=PATIENCE)


class Lines:
    """Collects lines; `first` waits for the first one."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._arrived = asyncio.Event()

    def __call__(self, line: str) -> None:
        self.seen.append(line)
        self._arrived.set()

    async def first(self) -> str:
        await self._arrived.wait()
        return self.seen[0]


class ScriptedClock:
    """Stands still, but for what it is asked to sleep and what the test adds."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


# --- one child -----------------------------------------------------------------------------------


TOLD = """import os
print(os.getpriority(os.PRIO_PROCESS, 0), open("/proc/self/oom_score_adj").read())"""
MINE = os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/oom_score_adj").read_text().strip()


@in_each_loop
async def test_a_child_that_stands_behind_others_does_so_from_its_first_moment_on() -> None:
    for nice, claims in ((None, MINE), (0, (0, 1000)), (7, (7, 1000))):
        lines = Lines()
        async with spawn(replace(python(TOLD), nice=nice), on_line=lines) as child:
            assert await child.wait() == Exit(0)
        assert lines.seen[0] == f"{claims[0]} {claims[1]}", nice


@in_each_loop
async def test_output_and_errors_arrive_as_one_stream_of_lines_before_the_exit_status() -> None:
    lines = Lines()
    child = spawn(shell("echo one; echo two >&2; printf three"), on_line=lines)
    assert str(await child.wait()) == "exit status 0"
    assert lines.seen == ["one", "two", "three"]
    assert str(await spawn(shell("exit 3"), on_line=lines).wait()) == "exit status 3"


@in_each_loop
async def test_long_lines_are_cut_and_undecodable_bytes_replaced_and_every_line_is_read() -> None:
    lines = Lines()
    code = "import os; os.write(1, b'a' * 300_000 + b'\\nb\\xff\\r\\n')"
    await spawn(python(code), on_line=lines).wait()
    assert [len(line) for line in lines.seen] == [LINE_LIMIT + 1, 2]
    assert lines.seen[0].endswith("a…")
    assert lines.seen[1] == "b\ufffd"
    lines = Lines()
    await spawn(python("for n in range(100_000): print(n)"), on_line=lines).wait()
    assert lines.seen == [str(number) for number in range(100_000)]


@in_each_loop
async def test_stop_lets_the_child_finish_and_may_be_called_again() -> None:
    lines = Lines()
    child = spawn(shell("trap 'echo bye; exit 7' TERM; echo up; sleep 60 & wait"), on_line=lines)
    await lines.first()
    await asyncio.gather(child.stop(), child.stop())
    await child.stop()
    assert lines.seen == ["up", "bye"]
    assert str(await child.wait()) == "exit status 7"


@in_each_loop
async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace_or_a_cancelled_stop() -> None:
    for grace, is_cancelled in ((0.1, False), (3600.0, True)):
        lines = Lines()
        child = spawn(shell("trap '' TERM; echo up; sleep 60 & wait; wait"), on_line=lines)
        await lines.first()
        stopping = asyncio.create_task(child.stop(grace=grace))
        await asyncio.sleep(0)
        if is_cancelled:
            stopping.cancel()
        assert str(await child.wait()) == "killed by signal 9 (SIGKILL)"


@in_each_loop
async def test_the_end_of_a_child_ends_its_whole_group_and_leaving_its_context_ends_it() -> None:
    lines = Lines()
    child = spawn(shell("sleep 60 & echo $!; exit 0"), on_line=lines)
    await child.wait()
    assert not lives(int(lines.seen[0]))
    async with spawn(shell("sleep 60"), on_line=Lines()) as child:
        pass
    assert child.is_gone
    assert not lives(child.pid)


# --- a program that is kept running --------------------------------------------------------------

SLEEPER = Program("sleeper", ("/bin/sleep", "60"))


class Kept:
    """A program that is kept running inside the block, on a clock that stands still.

    `seen` are its conditions; `until` waits for the one that is asked for.
    """

    def __init__(self, program: Program, **options: Any) -> None:
        self.clock, self.seen = ScriptedClock(), list[ProcessCondition]()
        self._changed = asyncio.Event()
        self.supervised = Supervised(
            lambda: program, on_line=Lines(), on_change=self._became, clock=self.clock, **options
        )

    def _became(self, condition: ProcessCondition) -> None:
        self.seen.append(condition)
        self._changed.set()

    async def until(self, state: SupervisedState, restarts: int = 0) -> ProcessCondition:
        while True:
            for condition in self.seen:
                if condition.state is state and condition.restarts == restarts:
                    return condition
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> "Kept":
        self._task = asyncio.create_task(self.supervised.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@in_each_loop
async def test_restarts_of_what_cannot_be_executed_are_delayed_ever_longer_up_to_a_limit() -> None:
    async with Kept(Program("missing", ("/nowhere/program",))) as missing:
        last = await missing.until(SupervisedState.BACKING_OFF, restarts=7)
    assert missing.clock.slept[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert last.reason == "/nowhere/program cannot be executed: No such file or directory"
    assert (last.delay, last.pid) == (10.0, None)
    assert Backoff(first=0.2, longest=10.0).delay(100_000) == 10.0


async def answers() -> None:
    """A probe that returns at once."""


async def never() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("backoff", "probe", "spans", "slept"),
    [
        (Backoff(), None, [1.0, 1.0, 31.0, 1.0], [0.2, 0.4, 0.2, 0.4]),
        (CONTROL_BACKOFF, answers, [2.0, 2.0, *[1.9] * 4], [0.2, 0.2, 0.4, 0.8, 1.6, 3.0]),
        (CONTROL_BACKOFF, never, [60.0] * 3, [0.2, 0.4, 0.8]),  # its start comes to no end
    ],
)
@in_each_loop
async def test_a_healthy_life_forgives_earlier_failures(
    backoff: Backoff, probe: Any, spans: list[float], slept: list[float]
) -> None:
    async with Kept(SLEEPER, probe=probe, backoff=backoff) as sleeper:
        for restarts, lived in enumerate(spans):
            state = SupervisedState.STARTING if probe is never else SupervisedState.RUNNING
            await sleeper.until(state, restarts)
            while (pid := sleeper.supervised.condition.pid) is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            sleeper.clock.time += lived
            os.kill(pid, signal.SIGKILL)
            await sleeper.until(SupervisedState.BACKING_OFF, restarts)
    assert sleeper.clock.slept[: len(slept)] == slept
    assert sleeper.supervised.condition.reason == "killed by signal 9 (SIGKILL)"


@in_each_loop
async def test_a_program_is_running_once_its_probe_returns() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def probe() -> None:
        asked.set()
        await answered.wait()

    async with Kept(SLEEPER, probe=probe) as sleeper:
        await asked.wait()
        assert sleeper.supervised.condition.state is SupervisedState.STARTING
        answered.set()
        await sleeper.until(SupervisedState.RUNNING)
    states = [str(condition.state) for condition in sleeper.seen]
    assert states == ["starting", "starting", "running", "stopped"]
    assert ends(sleeper.seen[1].pid or 0)


@in_each_loop
async def test_a_program_whose_probe_gives_up_is_ended_and_started_again() -> None:
    async def probe() -> None:
        raise Hopeless("it is lost")

    async with Kept(SLEEPER, probe=probe) as lost:
        last = await lost.until(SupervisedState.BACKING_OFF, restarts=1)
    assert last.reason == "it is lost"
    assert all(ends(condition.pid) for condition in lost.seen if condition.pid)


# --- a parent that is killed ---------------------------------------------------------------------

PARENT = """
import asyncio, sys
from pathlib import Path
from serve.processes import Ledger, Program, spawn, hold_lock

async def main():
    child = spawn(
        Program("child", ("/bin/sh", "-c", "sleep 600 & echo $!; wait")),
        on_line=lambda line: print(child.pid, line, flush=True),
        ledger=Ledger(Path(sys.argv[1]) / "children.json"),
    )
    await child.wait()

with hold_lock(Path(sys.argv[1]) / "lock"):
    asyncio.run(main())
"""


def parent_with_family(folder: Path) -> tuple["subprocess.Popen[str]", int, int]:
    """A parent that runs, its child, and the child's child."""
    argv = (sys.executable, "-c", PARENT, str(folder))
    parent = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child, grandchild = parent.stdout.readline().split()
    return parent, int(child), int(grandchild)


def test_what_a_killed_parent_leaves_is_ended_by_the_next_which_gets_its_lock(
    tmp_path: Path,
) -> None:
    parent, child, grandchild = parent_with_family(tmp_path)
    lock, ledger = tmp_path / "lock", Ledger(tmp_path / "children.json")
    with pytest.raises(CannotStart, match=f"process {parent.pid} holds"), hold_lock(lock):
        pass
    parent.kill()
    parent.communicate()
    assert ends(child)
    assert lives(grandchild)
    with hold_lock(lock):
        assert lock.read_text() == str(os.getpid())
        assert [(swept.name, swept.pid) for swept in ledger.sweep()] == [("child", child)]
    assert ends(grandchild)
    assert ledger.entries == ()
    assert ledger.sweep() == ()


def test_a_sweep_kills_a_recorded_process_and_spares_another_that_has_its_pid(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "children.json")
    for offset, status in ((0, -signal.SIGKILL), (-1, None)):
        with subprocess.Popen(("sleep", "60"), start_new_session=True) as left:
            began = (start_time(left.pid) or 0) + offset
            entry = LedgerEntry(left.pid, began, "left", "1.1")
            ledger.record(entry)
            assert ledger.sweep() == ((entry,) if status else ())
            assert (left.wait(PATIENCE) if status else left.poll()) == status
            assert ledger.entries == ()
            left.kill()


@in_each_loop
async def test_a_sweep_spares_the_children_of_this_process(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "children.json")
    async with spawn(shell("sleep 60"), on_line=Lines(), ledger=ledger) as child:
        assert ledger.sweep() == ()
        assert [entry.pid for entry in ledger.entries] == [child.pid]
        assert lives(child.pid)
    assert ledger.entries == ()


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file may be written, as far as this process is concerned."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@in_each_loop
async def test_on_a_full_disk_children_start_and_end_and_are_written_down_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, raised, idle = tmp_path / "children.json", [], shell("sleep 60")
    caplog.clear()
    asyncio.get_running_loop().set_exception_handler(lambda _, one: raised.append(one))
    ledger = Ledger(path)
    async with spawn(idle, on_line=Lines(), ledger=ledger) as first:
        with full_disk():
            second = spawn(idle, on_line=Lines(), ledger=ledger)
            third = spawn(shell("exit 0"), on_line=Lines(), ledger=ledger)
            await third.wait()
            assert [entry.pid for entry in ledger.entries] == [first.pid, second.pid]
            await first.stop()
        assert [entry.pid for entry in Ledger(path).entries] == [first.pid]
        async with spawn(idle, on_line=Lines(), ledger=ledger) as fourth:
            assert [entry.pid for entry in Ledger(path).entries] == [second.pid, fourth.pid]
        await second.stop()
    assert Ledger(path).entries == ()
    assert not raised
    assert [one.name for one in tmp_path.iterdir()] == [path.name]  # noqa: ASYNC240
    said = [one.message for one in caplog.records if one.name == "servegate.processes"]
    assert [message.partition(": ")[0] for message in said] == [
        f"cannot write the list of child processes, {path}"
    ]


def test_the_ledger_is_readable_for_its_owner_only(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state" / "children.json")
    ledger.record(LedgerEntry(1, 1, "child", "1.1"))
    assert (tmp_path / "state" / "children.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["children.json"]


def test_a_ledger_that_makes_no_sense_or_is_from_before_a_reboot_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "children.json"
    for content in ("", "{", "[]", '{"boot": 1}'):
        path.write_text(content)
        assert Ledger(path).entries == (), content
    Ledger(path).record(LedgerEntry(os.getpid(), start_time(os.getpid()) or 0, "child", "1.1"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "another"}))
    assert Ledger(path).entries == ()


# --- the lock and the shared memory --------------------------------------------------------------


def test_a_lock_that_is_held_names_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with hold_lock(lock), pytest.raises(CannotStart) as caught, hold_lock(lock):
        pass
    assert str(caught.value) == (
        f"the state folder {tmp_path} is in use: process {os.getpid()} holds its lock, lock. "
        "Try: stop that process, or use another state folder"
    )


def test_only_shared_memory_with_the_prefix_is_unlinked() -> None:
    prefix = f"servegate-test-{uuid.uuid4()}-"
    ours, other = Path(f"/dev/shm/{prefix}1"), Path(f"/dev/shm/other-{prefix}1")
    ours.touch()
    other.touch()
    assert sweep_shared_memory(prefix) == (ours.name,)
    assert not ours.exists()
    assert other.exists()
    other.unlink()
    with pytest.raises(ValueError, match="every program"):
        sweep_shared_memory("")
