"""How much memory this machine or container has free."""

from pathlib import Path

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
