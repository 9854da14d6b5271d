"""Services of the kernel and the C library: dying with a parent, names, CPU time, memory.

How much memory this machine or container has free.
"""

import contextlib
import ctypes
import gc
import os
import signal
import time
from pathlib import Path

# --- how much memory this machine or container has free -------------------------------------------


_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that this machine has free, or this container, where that is less."""
    lines = (line.split() for line in _MEMINFO.read_text().splitlines())
    sizes = {words[0]: int(words[1]) << 10 for words in lines if len(words) > 1}
    free = sizes.get("MemAvailable:", sizes.get("MemFree:", 0))
    return min(free, _free_in_group(_GROUP, free))


def _free_in_group(group: Path, otherwise: int) -> int:
    """What is left of a cgroup's limit; files that the kernel caches for it can be given up.

    Source: memory.max, memory.current and memory.stat of cgroup v2.
    """
    try:
        most = int((group / "memory.max").read_text())
        taken = int((group / "memory.current").read_text())
        rows = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached = next((int(value) for name, value in rows if name == "inactive_file"), 0)
    except (OSError, ValueError):  # not in a container, or one without a limit
        return otherwise
    return max(0, most - taken + cached)


# --- services of the kernel and the C library -----------------------------------------------------


_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_FIRST_TO_BE_KILLED = 1000
_CPU_CLOCK = 2  # of a process; the kernel's CPUCLOCK_SCHED
_M_ARENA_MAX = -8  # of mallopt(3)
_libc = ctypes.CDLL(None)  # loaded here, because nothing may be loaded between fork and exec


def die_with(parent: int) -> None:
    """Be killed when this parent dies; called in the child, right after the fork.

    The kernel ties the wish to the *thread* that forked, so that has to be one that lives as long
    as its process; in Servegate it is the main thread.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the kernel had noted the wish
        os._exit(1)


def carry_name(name: str) -> None:
    """The name that `ps -o comm`, `top` and `pgrep` show; the kernel keeps 15 bytes of it."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def share_memory() -> None:
    """Let all threads of this process take memory from one place; before they start.

    Each would have one of its own, whose free end `malloc_trim` leaves as it is.
    """
    if set_option := getattr(_libc, "mallopt", None):  # musl has none
        set_option(_M_ARENA_MAX, 1)


def return_memory() -> None:
    """Return what is free to the kernel. For a thread: the C library works without the GIL.

    After large blocks were freed, glibc keeps up to twice their size for itself, and what only
    garbage refers to is not free (see `mallopt(3)`, M_TRIM_THRESHOLD).
    """
    gc.collect()
    if trim := getattr(_libc, "malloc_trim", None):  # musl has none
        trim(0)


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used so far; 0 if there is no such process.

    See `clock_getcpuclockid(3)`: the clock's number is made of the process's.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0.0


def step_back(nice: int) -> None:
    """The kernel serves others before this child, and kills it first when memory runs out.

    Called in the child, right after the fork: a priority is of a thread, and those that there are
    by then do not follow.
    """
    claims = {"oom_score_adj": _FIRST_TO_BE_KILLED, "autogroup": nice}
    for name, value in claims.items():
        with contextlib.suppress(OSError):
            file = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(file, b"%d" % value)
            os.close(file)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
