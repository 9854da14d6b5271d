"""Arriving: what was uploaded, by its format, as fresh rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from serve.core.errors import Invalid
from serve.workbench.evaluation.formats.bundle import BundlePart, FileBundle, Zip
from serve.workbench.evaluation.formats.csv_file import read_csv
from serve.workbench.evaluation.formats.folder import read_folder
from serve.workbench.evaluation.formats.npz_file import read_npz
from serve.workbench.evaluation.formats.parquet_file import read_parquet
from serve.workbench.evaluation.rows import Fresh


class DatasetFormat(StrEnum):
    """The format of a dataset file."""

    CSV = "csv"
    NPZ = "npz"
    PARQUET = "parquet"
    ZIP = "zip"


@dataclass(frozen=True, slots=True)
class Roles:
    """What people say of columns: the label's name, empty for the usual ones, and the slices."""

    label: str = ""
    slices: tuple[str, ...] = ()


def read_file(
    path: Path, file_format: DatasetFormat, roles: Roles, notes: list[str]
) -> Iterator[Fresh]:
    """The rows of one file; `notes` gets what people should know."""
    if file_format is DatasetFormat.ZIP:
        with Zip.opened(path) as bundle:
            yield from read_folder(bundle, notes)
    elif file_format is DatasetFormat.NPZ:
        yield from read_npz(path, roles.label)
    elif file_format is DatasetFormat.PARQUET:
        yield from read_parquet(path, roles.label, roles.slices)
    else:
        with path.open("rb") as file:
            yield from read_csv(file, roles.label, roles.slices)


def read_parts(
    path: Path, parts: Sequence[BundlePart], roles: Roles, notes: list[str], scratch: Path
) -> Iterator[Fresh]:
    """The rows of files that lie behind each other in one: a folder, or a single file."""
    if not parts:
        raise Invalid(
            "no file was sent", try_this="upload a CSV, NPZ, Parquet or ZIP file, or pictures"
        )
    suffix = Path(parts[0].path).suffix.lower().removeprefix(".")
    if len(parts) == 1 and suffix in list(DatasetFormat):
        alone = scratch / "alone"
        path.rename(alone)  # parts follow each other without a gap
        yield from read_file(alone, DatasetFormat(suffix), roles, notes)
    else:
        yield from read_folder(FileBundle(path, parts), notes)


def slices_of(text: str) -> tuple[str, ...]:
    """The names of slices, written with commas between them."""
    return tuple(name for part in text.split(",") if (name := part.strip()))
