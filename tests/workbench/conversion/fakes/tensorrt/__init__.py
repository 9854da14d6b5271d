"""What the plan reader uses of TensorRT; a plan holds its tensors as text after byte 28."""

from enum import Enum
from types import SimpleNamespace
from typing import Any

__version__ = "10.3.0"


class Logger:
    """Says nothing."""

    ERROR = 1

    def __init__(self, level: int) -> None:
        self.level = level


class TensorIOMode(Enum):
    INPUT = "input"
    OUTPUT = "output"


class Runtime:
    """Reads plans of rows: role, name, datatype, dimensions with commas; None for all others."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> Any:
        rows = {row[1]: row for row in map(str.split, plan[28:].decode().splitlines())}
        if not rows:
            return None
        return SimpleNamespace(
            num_io_tensors=len(rows),
            get_tensor_name=list(rows).__getitem__,
            get_tensor_mode=lambda name: TensorIOMode(rows[name][0]),
            get_tensor_dtype=lambda name: SimpleNamespace(name=rows[name][2]),
            get_tensor_shape=lambda name: tuple(map(int, rows[name][3].split(","))),
        )
