"""The zoo: one small source model for each row of what must convert, and of what must fail well.

Builders write a source below a folder and return its path. They import TensorFlow themselves, so
that the rows can be listed without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Build = Callable[[Path], Path]


@dataclass(frozen=True, slots=True)
class Row:
    """A source and how its conversion ends: with a model, or with a fault of this code.

    `operator` and `node` are what the fault names; `node` is part of the whole name. `is_slow`:
    only in the whole matrix.
    """

    name: str
    build: Build
    signature: str = ""
    nchw: tuple[str, ...] = ()
    code: str = ""
    operator: str = ""
    node: str = ""
    is_slow: bool = True


ROWS: dict[str, Row] = {}


def row(name: str, **facts: object) -> Callable[[Build], Build]:
    """Enter a builder under this name."""

    def enter(build: Build) -> Build:
        assert name not in ROWS, name
        ROWS[name] = Row(name, build, **facts)  # type: ignore[arg-type]
        return build

    return enter
