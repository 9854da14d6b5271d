"""Columns: which of a table is the label, which are slices, and what the others are to a model.

| a cell of the first row | the column                                                          |
|-------------------------|---------------------------------------------------------------------|
| a list                  | an input of this name, as nested lists                              |
| a number, true, false   | one number of the vector that all such columns make, in their order |
| a picture's bytes       | an input of this name (Parquet only)                                |
| any other text          | an input of this name, as a text                                    |

A vector is the only input of a model; or, where the model has inputs of these names, each column is
one of them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.core.errors import Invalid
from serve.tensors.input_forms import GivenInput, InputForm
from serve.workbench.evaluation.formats.folder import picture
from serve.workbench.evaluation.rows import Fresh

_LABELS = ("label", "labels", "class", "target", "y")
_LIST, _NUMBER, _TEXT, _PICTURE = "a list", "a number", "a text", "a picture"


@dataclass(frozen=True, slots=True)
class Columns:
    """The roles of a table's columns."""

    label: str
    slices: tuple[str, ...]
    inputs: tuple[str, ...]


def columns_of(names: Sequence[str], label: str, slices: Sequence[str]) -> Columns:
    """Which column is what; `Invalid` names those that there are."""
    there = ", ".join(names)[:500]
    if len(set(names)) != len(names) or not all(names):
        raise Invalid(
            "the column names must be unique and not empty", why=f"the columns are {there}"
        )
    label = label or next((name for name in _LABELS if name in names), "")
    if label not in names:
        raise Invalid(
            f"there is no label column '{label}'" if label else "there is no label column",
            why=f"the columns are {there}",
            try_this="name the label column (command line: --label NAME)",
        )
    for name in slices:
        if name not in names or name == label:
            raise Invalid(f"'{name}' cannot be a slice column", why=f"the columns are {there}")
    inputs = tuple(name for name in names if name != label and name not in slices)
    if not inputs:
        raise Invalid("there are no columns for the model's inputs", why=f"the columns are {there}")
    return Columns(label, tuple(slices), inputs)


class ColumnReader:
    """Makes rows of cells; the first row says what each column is."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._kinds: dict[str, str] = {}
        self._vector: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<ColumnReader {self._columns.inputs}>"

    def row(self, values: Mapping[str, Any], where: str) -> Fresh:
        """One row; `Invalid` says which cell does not fit."""
        cells: dict[str, GivenInput] = {}
        numbers = []
        if not self._kinds:
            self._kinds = {name: _kind(values[name]) for name in self._columns.inputs}
            self._vector = tuple(n for n, kind in self._kinds.items() if kind == _NUMBER)
        for name in self._columns.inputs:
            value, kind = values[name], self._kinds[name]
            if value is None or value == "":
                raise Invalid(f"{where}: column '{name}' is empty")
            if _kind(value) != kind:
                raise Invalid(
                    f"{where}: column '{name}' has the value {_shown(value)}",
                    why=f"it has {kind} in the first row",
                )
            if kind == _NUMBER:
                numbers.append(value)
            else:
                cells[name] = _given(value, kind, f"{where}, column '{name}'")
        if numbers:
            cells[""] = GivenInput(InputForm.JSON, json.dumps(numbers).encode())
        slices = {name: _text(values[name]) for name in self._columns.slices}
        label = _text(values[self._columns.label])
        return Fresh(label, cells, slices=slices, vector=self._vector)


def _given(value: Any, kind: str, where: str) -> GivenInput:
    if kind == _LIST:
        return GivenInput(InputForm.JSON, json.dumps(value).encode())
    if kind == _PICTURE:
        return picture(value, where)
    return GivenInput(InputForm.TEXT, str(value).encode())


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return _LIST
    if isinstance(value, bytes):
        return _PICTURE
    return _NUMBER if isinstance(value, int | float) else _TEXT


def _text(value: Any) -> str:
    """A label or a slice as a text: `7` for 7.0, `true` for True."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
