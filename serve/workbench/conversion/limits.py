"""What a conversion may take, and the surroundings of the process that does it."""

import os
from dataclasses import dataclass
from pathlib import Path

from serve.model_files.reader import KEPT

SHARE = 0.75  # of the memory that is free
SECONDS = 1800.0
_MOST_THREADS = 4
_LEAST = 1 << 30  # bytes; below that TensorFlow cannot even be imported
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class ConversionLimits:
    """`memory`: bytes that the child and its own children may take together. `seconds`: of the
    clock, from its start to its end. `nice`: its claim to the processor, 0 where somebody waits."""

    memory: int
    seconds: float = SECONDS
    nice: int = 10


def default_limits() -> ConversionLimits:
    """Three quarters of the memory that is free now, and half an hour."""
    return ConversionLimits(max(_LEAST, int(SHARE * free_memory())))


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


def surroundings(scratch: Path) -> dict[str, str]:
    """The child's whole environment: no secrets, no GPU, and files only below `scratch`."""
    threads = str(min(_MOST_THREADS, os.cpu_count() or 1))
    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        **dict.fromkeys(("HOME", "TMPDIR", "KERAS_HOME", "XDG_CACHE_HOME"), str(scratch)),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads),
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",  # errors
        "TF_ENABLE_ONEDNN_OPTS": "0",  # the same numbers on every processor
        "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": "tensorflow",
        "ORT_DISABLE_TELEMETRY": "1",
        "PYTHONHASHSEED": "0",  # tf2onnx gives names in the order of sets
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",
    }
