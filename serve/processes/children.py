"""One child process: started so that it dies with its parent, read line by line, ended as a group.

A child is the leader of its own session and process group, which share its pid as their number.
The kernel cannot give that number to anybody else while one member lives, or while the leader is
not yet reaped. So the order at the end of a child is fixed: the leader has exited → SIGKILL to the
group → reap the leader → wait until the group is empty → `wait()` returns.

The exit is seen through a pidfd in the event loop: no thread, no SIGCHLD handler, the same code on
asyncio and uvloop. The kernel ties `PR_SET_PDEATHSIG` to the *thread* that forks, so `spawn` is
called in a thread that lives as long as the process; in Servegate that is the main thread.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from serve.processes.kernel import die_with, step_back
from serve.processes.ledger import MARK_VARIABLE, Ledger, LedgerEntry, own_mark
from serve.processes.table import rows, start_time

LINE_LIMIT = 16 * 1024  # bytes; the rest of a longer line is dropped
_READ_SIZE = 64 * 1024  # bytes; one read per turn of the loop, so that no child starves the others
_PIPE_READS = 16  # a pipe holds at most 1 MiB, unless root says otherwise
_BURIAL = 0.002  # seconds until the second look at a group that is dying of SIGKILL; they double
_LONGEST_BURIAL = 1.0  # seconds; a group that needs longer hangs in the kernel
_KILL_PATIENCE = 5.0  # seconds; a process in uninterruptible sleep outlives SIGKILL


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `env` is the child's whole environment; `grace` is the seconds after SIGTERM.

    With `nice` it stands behind others, by so much for the processor, and for memory altogether.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    grace: float = 10.0
    nice: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: its exit status, or the negated number of the signal that killed it."""

    code: int

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit status {self.code}"
        return f"killed by signal {-self.code} ({_signal_name(-self.code)})"


def spawn(
    program: Program, *, on_line: Callable[[str], None], ledger: Ledger | None = None
) -> "Child":
    """Start a program in the running event loop; raises OSError if it cannot be executed.

    `on_line` receives each line of its stdout and stderr, without the line end, in the loop's
    thread. With a ledger, the child is written down until its whole group is gone.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            program.argv,
            env={**program.env, MARK_VARIABLE: own_mark()},
            cwd=program.cwd,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            preexec_fn=partial(_begin, os.getpid(), program.nice),
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    entry = LedgerEntry(process.pid, start_time(process.pid) or 0, program.name, own_mark())
    try:
        if ledger is not None:
            ledger.record(entry)
        forget = (lambda: ledger.forget(entry)) if ledger is not None else (lambda: None)
        return Child(program, process, reading, on_line=on_line, on_gone=forget)
    except BaseException:  # nobody would ever stop it
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(reading)
        raise


def _begin(parent: int, nice: int | None) -> None:
    """In the child, between fork and exec."""
    die_with(parent)
    if nice is not None:
        step_back(nice)


class Child:
    """A running (or ended) child process. As a context manager it is stopped at the end."""

    def __init__(
        self,
        program: Program,
        process: subprocess.Popen[bytes],
        output: int,
        *,
        on_line: Callable[[str], None],
        on_gone: Callable[[], None],
    ) -> None:
        self.program = program
        self.pid = process.pid
        self._process = process
        self._on_gone = on_gone
        self._lines = _Lines(on_line)
        self._output = output
        self._was_asked = False
        self._gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self.pid)
        os.set_blocking(output, False)
        self._loop.add_reader(output, self._read)
        self._loop.add_reader(self._pidfd, self._on_exit)

    def __repr__(self) -> str:
        state = str(Exit(self._process.returncode)) if self._gone.is_set() else "alive"
        return f"<Child {self.program.name} pid={self.pid} {state}>"

    async def __aenter__(self) -> "Child":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def is_gone(self) -> bool:
        """The leader is reaped and its group is empty."""
        return self._gone.is_set()

    async def wait(self) -> Exit:
        """Wait until the process and its whole group are gone."""
        await self._gone.wait()
        return Exit(self._process.returncode)

    async def stop(self, grace: float | None = None) -> None:
        """SIGTERM to the group, then SIGKILL after `grace` seconds (the program's, if not given).

        May be called again, and by several tasks. A stop that is cancelled kills at once.
        """
        if self.is_gone:
            return
        try:
            if not self._was_asked:  # some programs take a second SIGTERM for impatience
                self._was_asked = True
                self._signal(signal.SIGTERM)
            async with asyncio.timeout(self.program.grace if grace is None else grace):
                await self._gone.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_KILL_PATIENCE):
                    await self._gone.wait()
        except BaseException:
            self._signal(signal.SIGKILL)
            raise

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_gone:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _read(self) -> None:
        """Pass on what has arrived; stop reading at the end of the stream."""
        try:
            data = os.read(self._output, _READ_SIZE)
        except BlockingIOError:
            return
        if data:
            self._lines.feed(data)
        else:
            self._loop.remove_reader(self._output)

    def _on_exit(self) -> None:
        """The leader has exited; it is still a zombie, so the number of its group is still ours."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._bury(_BURIAL)

    def _bury(self, pause: float) -> None:
        """Look again, ever more slowly, until nobody lives in the group."""
        if _group_lives(self.pid) and pause <= _LONGEST_BURIAL:
            self._loop.call_later(pause, self._bury, pause * 2)
            return
        try:
            self._read_rest()
            self._on_gone()
        finally:
            self._gone.set()

    def _read_rest(self) -> None:
        """What is left in the pipe; a process that left the group may hold its other end."""
        self._loop.remove_reader(self._output)
        try:
            for _ in range(_PIPE_READS):
                if not (data := os.read(self._output, _READ_SIZE)):
                    break
                self._lines.feed(data)
        except BlockingIOError:
            pass
        finally:
            os.close(self._output)
        self._lines.close()


class _Lines:
    """Cuts a byte stream into lines; a line without an end does not grow beyond the limit."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""
        self._is_cut = False

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._pass_on(line)
        if len(self._rest) > LINE_LIMIT:
            self._pass_on(self._rest)
            self._rest, self._is_cut = b"", True

    def close(self) -> None:
        """The stream is over; what has no line end is a line, too."""
        if self._rest:
            self._pass_on(self._rest)

    def _pass_on(self, line: bytes) -> None:
        if self._is_cut:  # this is the tail of a line whose head was passed on
            self._is_cut = False
            return
        text = line[:LINE_LIMIT].decode(errors="replace").rstrip("\r")
        self._on_line(text + "…" if len(line) > LINE_LIMIT else text)


def _group_lives(group: int) -> bool:
    """Somebody in the group has not ended; zombies have, however long nobody reaps them."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # nobody's, or already somebody else's
        return False
    lives = any(row.group == group and not row.is_zombie for row in rows())
    with suppress(ChildProcessError):  # as process 1 of a container we inherit the orphans
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    return lives


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"
