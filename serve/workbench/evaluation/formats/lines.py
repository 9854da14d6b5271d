"""The records of a CSV file, one after the other, with their places for error messages."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from serve.core.errors import Invalid
from serve.workbench.evaluation.rows import LARGEST_CELL

_MOST_COLUMNS = 100_000


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One record of the file, and the line on which it ends."""

    number: int
    cells: Sequence[str]


def read_lines(file: BinaryIO) -> Iterator[RecordLine]:
    """The header, then every record with as many cells; `Invalid` names the line."""
    csv.field_size_limit(LARGEST_CELL)  # of the whole process, which reads no other CSV
    reader = csv.reader(_bounded(file), strict=True)
    width = 0
    try:
        for cells in reader:
            if not cells:
                continue
            if not width:
                width = len(cells)
                if width > _MOST_COLUMNS:
                    raise Invalid(
                        f"{width} columns are too many", why=f"at most {_MOST_COLUMNS} are allowed"
                    )
            if len(cells) != width:
                raise Invalid(
                    f"line {reader.line_num} has {len(cells)} cell{'s' * (len(cells) != 1)}",
                    why=f"the header has {width}",
                )
            yield RecordLine(reader.line_num, cells)
    except UnicodeDecodeError as error:
        raise Invalid(f"the file is not UTF-8 after line {reader.line_num}") from error
    except csv.Error as error:
        raise Invalid(f"line {reader.line_num} cannot be read", why=str(error)) from error
    if not width:
        raise Invalid(
            "the file is empty", try_this="start with a header, followed by one row per line"
        )


def _bounded(file: BinaryIO) -> Iterator[str]:
    """The lines, of which none is longer than a cell may be."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    while line := text.readline(LARGEST_CELL):
        if len(line) == LARGEST_CELL:
            raise Invalid(
                "a line is too long", why=f"at most {LARGEST_CELL} characters are allowed"
            )
        yield line
