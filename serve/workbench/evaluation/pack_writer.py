"""Packing: fresh rows, checked one by one, into the two files of a pack and a summary of them."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from serve.control.artifacts.durable import telling
from serve.core.errors import Invalid
from serve.workbench.evaluation.rows import (
    LARGEST,
    LARGEST_CELL,
    LONGEST_TEXT,
    MOST_CELLS,
    MOST_ROWS,
    MOST_SLICES,
    Fresh,
    PackCell,
    checked_text,
    to_line,
)

MOST_CLASSES = 1000  # that are counted; a dataset of numbers to be estimated has as many as rows


@dataclass(frozen=True, slots=True)
class Packed:
    """A pack that was written. `labels` counts each; `inputs` maps names to their forms."""

    digest: str
    rows: int
    size: int
    labels: Counter[str]
    inputs: dict[str, str]
    slices: tuple[str, ...]
    vector: tuple[str, ...]


class PackWriter:
    """Writes a pack below a scratch folder, as `data`, of `largest` bytes at most, and `rows`.

    It runs in a thread.
    """

    def __init__(self, folder: Path, *, largest: int = LARGEST) -> None:
        self._largest = largest
        self.data = folder / "data"
        self.rows = folder / "rows"

    def __repr__(self) -> str:
        return f"<PackWriter {self.data.parent}>"

    def write(self, rows: Iterable[Fresh]) -> Packed:
        """All rows; `Invalid` names the first that cannot be kept."""
        hashed = (hashlib.sha256(), hashlib.sha256())
        labels: Counter[str] = Counter()
        inputs: dict[str, str] = {}
        names: tuple[str, ...] | None = None
        vector: tuple[str, ...] | None = None
        position = count = 0
        with telling("the dataset"), self.data.open("xb") as data, self.rows.open("xb") as lines:
            for fresh in rows:
                where = f"row {count}" + (f" ('{fresh.name}')" if fresh.name else "")
                _check(fresh, where, count)
                if vector is None:
                    vector, names = fresh.vector, tuple(fresh.slices)
                    head = json.dumps({"vector": vector}).encode() + b"\n"
                    lines.write(head)
                    hashed[1].update(head)
                if (fresh.vector, tuple(fresh.slices)) != (vector, names):
                    raise Invalid(f"{where} has different columns from the rows before it")
                cells = {}
                for name, given in fresh.cells.items():
                    cells[name] = PackCell(given.form, position, len(given.data))
                    position += len(given.data)
                    if position > self._largest:
                        raise _too_large(where, self._largest)
                    data.write(given.data)
                    hashed[0].update(given.data)
                    inputs.setdefault(name, given.form)
                line = to_line(fresh, cells)
                lines.write(line)
                hashed[1].update(line)
                labels[fresh.label] += 1
                count += 1
        if not count:
            raise Invalid("the dataset has no rows", try_this="upload a file with at least one row")
        both = hashed[0].digest() + hashed[1].digest()
        digest = hashlib.sha256(both).hexdigest()
        return Packed(digest, count, position, labels, inputs, names or (), vector or ())


def _check(fresh: Fresh, where: str, count: int) -> None:
    if count >= MOST_ROWS:
        raise Invalid("the dataset has too many rows", why=f"at most {MOST_ROWS} are allowed")
    if not fresh.label:
        raise Invalid(f"{where} has no label", why="every row needs a label")
    checked_text(fresh.label, f"{where}: the label")
    checked_text(fresh.name, f"{where}: the name", longest=5 * LONGEST_TEXT)
    if len(fresh.slices) > MOST_SLICES:
        raise Invalid(f"{where} has too many slices", why=f"at most {MOST_SLICES} are allowed")
    for name, value in fresh.slices.items():
        if not name:
            raise Invalid(f"{where}: a slice has no name")
        checked_text(name, f"{where}: the slice's name")
        checked_text(value, f"{where}: the slice '{name[:40]}'")
    if not 0 < len(fresh.cells) <= MOST_CELLS:
        raise Invalid(
            f"{where} has {len(fresh.cells)} inputs", why=f"1 to {MOST_CELLS} are allowed"
        )
    for name, given in fresh.cells.items():
        checked_text(name, f"{where}: the input's name")
        if len(given.data) > LARGEST_CELL:
            raise Invalid(
                f"{where} is too large", why=f"an input can have at most {LARGEST_CELL} bytes"
            )


def _too_large(where: str, largest: int) -> Invalid:
    return Invalid(
        "the dataset is too large",
        why=f"it exceeds {largest} bytes at {where}",
        try_this="use fewer rows or smaller pictures",
    )
