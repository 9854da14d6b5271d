"""What a conversion may take, and the surroundings of the process that does it."""

import os
from dataclasses import dataclass
from pathlib import Path

from serve.model_files.reader import KEPT
from serve.processes.kernel import free_memory

SHARE = 0.75  # of the memory that is free
SECONDS = 1800.0
_MOST_THREADS = 4
_LEAST = 1 << 30  # bytes; below that TensorFlow cannot even be imported


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
