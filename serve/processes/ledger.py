"""What outlives a parent that was killed: found again from a file, and ended.

The kernel kills a child whose parent dies, but not the child's own children: Triton's Python stubs
usually notice the death themselves, yet one that is busy, or a process that a model started, lives
on. A pid alone is no identity, because the kernel gives it away again. A process is one of ours

* if it has the pid, the start time (in ticks since boot) and the boot that were written down; or
* if it stands in the session that such a process led, and its environment carries the mark that
  the parent gave to its children and that their children inherit.

Everything here is synchronous and done at the start, before the event loop has anything to do.
"""

import contextlib
import fcntl
import json
import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from serve.core.errors import CannotStart
from serve.processes.table import boot, carries, rows, start_time

_log = logging.getLogger("servegate.processes")
MARK_VARIABLE = "SERVEGATE_CHILD_OF"
SHARED_MEMORY = Path("/dev/shm")

_SWEEP_PATIENCE = 5.0  # seconds in which everything that was sent SIGKILL has to be gone


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One child: its pid and session, its start time in ticks since boot, its parent's mark."""

    pid: int
    started: int
    name: str
    mark: str


class Ledger:
    """The file of running children: mode 0600, replaced whole, read again for every change.

    On a full disk it stays as it is. Children start and end all the same, and the next change that
    can be written holds those before it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten: tuple[LedgerEntry, ...] | None = (
            None  # what the file should hold, and does not
        )

    def __repr__(self) -> str:
        return f"<Ledger {self._path} {len(self.entries)} children>"

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """What is written down; nothing if the file is missing, unreadable or from another boot."""
        if self._unwritten is not None:
            return self._unwritten
        try:
            page = json.loads(self._path.read_bytes())
            if page["boot"] != boot():
                return ()
            return tuple(LedgerEntry(**entry) for entry in page["children"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return ()

    def record(self, entry: LedgerEntry) -> None:
        """Write down a child that has just been started."""
        self._write((*self.entries, entry))

    def forget(self, entry: LedgerEntry) -> None:
        """A child and its whole group are gone."""
        self._write(tuple(known for known in self.entries if known != entry))

    def sweep(self) -> tuple[LedgerEntry, ...]:
        """End what earlier parents left behind; answers the entries of which something lived.

        Children of this very process are left alone, so a sweep may be repeated.
        """
        left = tuple(entry for entry in self.entries if entry.mark != own_mark())
        pidfds: list[int] = []
        swept = []
        for entry in left:
            killed = [fd for pid in _family(entry) if (fd := _kill(pid, entry)) is not None]
            pidfds += killed
            if killed:
                swept.append(entry)
        _await_death(pidfds, time.monotonic() + _SWEEP_PATIENCE)
        if left:
            self._write(tuple(entry for entry in self.entries if entry not in left))
        return tuple(swept)

    def _write(self, entries: tuple[LedgerEntry, ...]) -> None:
        page = {"boot": boot(), "children": [asdict(entry) for entry in entries]}
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(page, indent=1))
            draft.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            if self._unwritten is None:
                _log.warning(
                    "cannot write the list of child processes, %s: %s. After a kill -9 of this "
                    "process, the next start may not find all of them",
                    self._path,
                    error.strerror or error,
                )
            self._unwritten = entries
        else:
            self._unwritten = None


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Be the only process that holds this file; raises CannotStart, naming the one that does.

    The kernel lets go of the lock when the process ends, in whatever way; the file itself stays.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read(20).strip() or "(unknown pid)"
            raise CannotStart(
                f"the state folder {path.parent} is in use",
                why=f"process {holder} holds its lock, {path.name}",
                try_this="stop that process, or use another state folder",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def sweep_shared_memory(prefix: str) -> tuple[str, ...]:
    """Unlink the POSIX shared memory whose name starts like this; answers the names.

    A process that has mapped a segment keeps it; the memory is free when the last one is gone.
    """
    if not prefix:
        raise ValueError("an empty prefix would unlink the shared memory of every program")
    try:
        paths = [path for path in SHARED_MEMORY.iterdir() if path.name.startswith(prefix)]
    except FileNotFoundError:
        return ()
    for path in paths:
        path.unlink(missing_ok=True)
    return tuple(sorted(path.name for path in paths))


def own_mark() -> str:
    """This process, as its children carry it in their environment: pid and start time."""
    pid = os.getpid()
    return f"{pid}.{start_time(pid)}"


def _family(entry: LedgerEntry) -> list[int]:
    """The pids of what may be this child or may descend from it, the child first."""
    session = (row.pid for row in rows() if row.session == entry.pid and not row.is_zombie)
    return sorted(session, key=lambda pid: (pid != entry.pid, pid))


def _kill(pid: int, entry: LedgerEntry) -> int | None:
    """SIGKILL to one process, if it is ours: a pidfd by which its end is seen, or None.

    The pidfd is opened before the identity is checked, so no other process can get the signal.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        if not (_is_same(pid, entry) or carries(pid, f"{MARK_VARIABLE}={entry.mark}")):
            raise ProcessLookupError
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        os.close(pidfd)
        return None
    return pidfd


def _is_same(pid: int, entry: LedgerEntry) -> bool:
    return pid == entry.pid and start_time(pid) == entry.started


def _await_death(pidfds: list[int], until: float) -> None:
    """Wait until all of them have ended, or the time (monotonic seconds) has come; closes them."""
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(max(0.0, until - time.monotonic()) * 1000)
        os.close(pidfd)
