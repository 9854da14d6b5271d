"""CSV: a header, and one row per line; UTF-8, comma, double quotes (RFC 4180)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from serve.core.errors import Invalid
from serve.workbench.evaluation.formats.columns import ColumnReader, columns_of
from serve.workbench.evaluation.formats.lines import read_lines
from serve.workbench.evaluation.rows import Fresh


def read_csv(file: BinaryIO, label: str, slices: Sequence[str]) -> Iterator[Fresh]:
    """Each row; `label` is a column's name, empty for the usual ones."""
    lines = read_lines(file)
    names = next(lines).cells
    columns = columns_of(names, label, slices)
    reader = ColumnReader(columns)
    inputs = frozenset(columns.inputs)
    for line in lines:
        where = f"line {line.number}"
        cells: dict[str, Any] = dict(zip(names, line.cells, strict=True))
        for name in inputs:
            cells[name] = _value(cells[name], f"{where}, column '{name}'")
        yield reader.row(cells, where)


def _value(cell: str, where: str) -> Any:
    """A list, a number, or the text itself."""
    if cell.lstrip().startswith("["):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{where} is not a valid JSON list", why=str(error)) from error
    if not cell or cell[0] not in "+-.0123456789nNiI":
        return cell
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        return cell
