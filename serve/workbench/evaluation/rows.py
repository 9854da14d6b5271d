"""Rows of datasets, as they are kept: a pack is two objects, written once.

    <digest>.data    what the rows were given, one after the other
    <digest>.rows    one line of JSON per row: label, name, slices, and where its cells are

The digest is SHA-256 of both, so a pack never changes. Cells are what people gave, not tensors:
each version makes its own tensors of them, by its own preprocessing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid, NotFound
from serve.tensors.input_forms import GivenInput, InputForm

MOST_ROWS = 200_000
LARGEST = 2 << 30  # bytes of an upload, and of what it holds
LARGEST_CELL = 64 << 20
LONGEST_TEXT = 200  # characters of a label, of a slice, and of a name's last part
MOST_SLICES = 10
MOST_CELLS = 100  # inputs of a row
_NO_TEXTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Fresh:
    """A row on its way into a pack.

    `cells` are by input name; an empty name is the model's only input. `vector` names the numbers
    of the cell "" where each is a column of its own.
    """

    label: str
    cells: Mapping[str, GivenInput]
    name: str = ""
    slices: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS)
    vector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PackCell:
    """Where one input of a row lies in the pack's data."""

    form: InputForm
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class PackRow:
    """One row of a pack; fields as of `Fresh`."""

    label: str
    name: str
    slices: Mapping[str, str]
    cells: Mapping[str, PackCell]


@dataclass(frozen=True, slots=True)
class Table:
    """A pack that can be read: its rows, and the file with their cells."""

    rows: tuple[PackRow, ...]
    vector: tuple[str, ...]
    data: Path

    def cells(self, index: int) -> dict[str, GivenInput]:
        """What a row was given; `NotFound` when the dataset was removed, `Invalid` if damaged."""
        try:
            opened = self.data.open("rb")
        except FileNotFoundError as error:
            raise NotFound("the dataset was deleted") from error
        with opened as file:
            found = {}
            for name, cell in self.rows[index].cells.items():
                file.seek(cell.start)
                data = file.read(cell.size)
                if len(data) != cell.size:
                    raise Invalid("the dataset is damaged", why=f"row {index} is incomplete")
                found[name] = GivenInput(cell.form, data, self.rows[index].name or f"row {index}")
        return found


def checked_text(text: str, what: str, *, longest: int = LONGEST_TEXT) -> str:
    """A label, a slice or a name, as it may be shown and kept; `Invalid` for anything else."""
    if len(text) > longest:
        raise Invalid(f"{what} has {len(text)} characters", why=f"at most {longest} are allowed")
    if not text.isprintable():
        raise Invalid(
            f"{what} {text[:40]!r} cannot be shown", why="it has characters that are not printable"
        )
    return text


def to_line(fresh: Fresh, cells: Mapping[str, PackCell]) -> bytes:
    """One line of a `.rows` object."""
    page = [
        fresh.label,
        fresh.name,
        dict(fresh.slices),
        {name: [cell.form, cell.start, cell.size] for name, cell in cells.items()},
    ]
    return json.dumps(page, separators=(",", ":")).encode() + b"\n"


def read_table(lines: bytes, data: Path) -> Table:
    """What `PackWriter` has written."""
    first, *others = lines.splitlines()
    head = json.loads(first)
    return Table(tuple(_row(json.loads(line)) for line in others), tuple(head["vector"]), data)


def _row(page: list[Any]) -> PackRow:
    label, name, slices, cells = page
    return PackRow(
        label,
        name,
        MappingProxyType(slices),
        MappingProxyType(
            {
                key: PackCell(InputForm(form), start, size)
                for key, (form, start, size) in cells.items()
            }
        ),
    )
