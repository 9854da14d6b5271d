"""Parquet, read with pyarrow, which only `servegate[parquet]` brings: columns as in CSV.

Bytes are pictures; so are the structs with `bytes` that Hugging Face's datasets keep them in.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from serve.core.errors import Invalid, NotServed
from serve.workbench.evaluation.formats.columns import ColumnReader, columns_of
from serve.workbench.evaluation.rows import LARGEST, MOST_ROWS, Fresh

_AT_ONCE = 64  # rows
_LARGEST_GROUP = 512 << 20  # bytes of a row group, which is decoded at once


def read_parquet(path: Path, label: str, slices: Sequence[str]) -> Iterator[Fresh]:
    """Each row; `NotServed` without pyarrow."""
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise NotServed(
            "Parquet files cannot be read",
            why="pyarrow is not installed",
            try_this="use CSV or NPZ, or install it with pip install '.[parquet]' in a checkout",
        ) from error
    try:
        with parquet.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            yield from _rows(file, label, slices)
    except Invalid:
        raise
    except Exception as error:  # pyarrow's errors, and those of Python that it maps to
        raise Invalid("the file is not a readable Parquet file", why=str(error)[:300]) from error


def _rows(file: Any, label: str, slices: Sequence[str]) -> Iterator[Fresh]:
    about = file.metadata
    sizes = [about.row_group(number).total_byte_size for number in range(about.num_row_groups)]
    if about.num_rows > MOST_ROWS or sum(sizes) > LARGEST or max(sizes, default=0) > _LARGEST_GROUP:
        raise Invalid(
            "the Parquet file is too large",
            why=f"{about.num_rows} rows, {sum(sizes)} bytes; at most {MOST_ROWS} rows and "
            f"{LARGEST} bytes in groups of at most {_LARGEST_GROUP}",
        )
    names = [str(name) for name in file.schema_arrow.names]
    reader = ColumnReader(columns_of(names, label, slices))
    number = 0
    for batch in file.iter_batches(batch_size=_AT_ONCE, use_threads=False):
        for row in batch.to_pylist():
            yield reader.row({name: _plain(value) for name, value in row.items()}, f"row {number}")
            number += 1


def _plain(value: Any) -> Any:
    """What `ColumnReader` knows: numbers, texts, lists, bytes."""
    if isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes):
        return value["bytes"]
    if value is None or isinstance(value, int | float | str | list | bytes):
        return value
    raise Invalid(
        f"a column contains {type(value).__name__}",
        why="only numbers, texts, lists and pictures are supported",
    )
