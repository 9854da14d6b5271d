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
    """Reads plans whose text begins with `input` or `output`; gives None for all others."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> Any:
        lines = plan[28:].decode().splitlines()
        return Engine([line.split() for line in lines]) if lines else None


class Engine:
    """Rows of role, name, datatype, and dimensions with commas."""

    def __init__(self, rows: list[list[str]]) -> None:
        self.rows = {row[1]: row for row in rows}
        self.num_io_tensors = len(rows)

    def get_tensor_name(self, index: int) -> str:
        return list(self.rows)[index]

    def get_tensor_dtype(self, name: str) -> Any:
        return SimpleNamespace(name=self.rows[name][2])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(map(int, self.rows[name][3].split(",")))

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode(self.rows[name][0])
