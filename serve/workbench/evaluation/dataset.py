"""One revision of a dataset as a value: its packs, what it holds, and its rows by number."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from serve.core.errors import Invalid, NotFound
from serve.tensors.input_forms import GivenInput
from serve.workbench.evaluation.pack_writer import MOST_CLASSES
from serve.workbench.evaluation.rows import PackRow, Table

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\Z")


def check_dataset_name(name: str) -> str:
    """Give the name back, or say what it may be: it is a folder's."""
    if not _NAME.match(name):
        raise Invalid(
            f"'{name[:120]}' is not a valid dataset name",
            why="up to 101 letters, digits, '.', '_' and '-' are allowed, and the first character "
            "must be a letter or a digit",
        )
    return name


@dataclass(frozen=True, slots=True)
class PackOf:
    """A pack of a revision. `size` is in bytes.

    `labels` counts each, and is empty where they are too many; `distinct` is how many there are.
    `is_added`: its rows were added one by one.
    """

    digest: str
    rows: int
    size: int
    labels: Mapping[str, int]
    distinct: int
    inputs: Mapping[str, str]
    slices: tuple[str, ...]
    vector: tuple[str, ...]
    is_added: bool
    has_pictures: bool

    def with_pictures(self, found: bool) -> "PackOf":
        """The same, with what is known of its pictures."""
        return replace(self, has_pictures=found)


@dataclass(frozen=True, slots=True)
class Dataset:
    """One revision. `at`: seconds of the epoch."""

    name: str
    revision: int
    packs: tuple[PackOf, ...]
    source: str
    author: str
    at: float

    @property
    def digest(self) -> str:
        """SHA-256 of all packs' digests: what was evaluated."""
        return hashlib.sha256("".join(pack.digest for pack in self.packs).encode()).hexdigest()

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(pack.rows for pack in self.packs)

    @property
    def size(self) -> int:
        """Bytes of what rows were given."""
        return sum(pack.size for pack in self.packs)

    @property
    def classes(self) -> Mapping[str, int]:
        """How often each label is there; empty where they are too many to be classes."""
        counts: Counter[str] = Counter()
        for pack in self.packs:
            counts.update(pack.labels)
        is_known = all(pack.labels for pack in self.packs) and len(counts) <= MOST_CLASSES
        return dict(counts) if is_known else {}

    @property
    def inputs(self) -> Mapping[str, str]:
        """The form of each input; an empty name is the model's only one."""
        return {name: form for pack in reversed(self.packs) for name, form in pack.inputs.items()}

    @property
    def slices(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(dict.fromkeys(name for pack in self.packs for name in pack.slices))

    @property
    def vector(self) -> tuple[str, ...]:
        """The columns of numbers that make one input."""
        return next((pack.vector for pack in self.packs if pack.vector), ())

    @property
    def has_pictures(self) -> bool:
        """Whether rows can be looked at as pictures."""
        return any(pack.has_pictures for pack in self.packs)

    def to_json(self) -> dict[str, Any]:
        """What the storage keeps."""
        page = asdict(self)
        page["packs"] = [asdict(pack) for pack in self.packs]
        return page

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> "Dataset":
        """What `to_json` has made."""
        packs = tuple(
            PackOf(**{**one, "slices": tuple(one["slices"]), "vector": tuple(one["vector"])})
            for one in page["packs"]
        )
        return cls(**{**page, "packs": packs})


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The rows of a revision, which can be read."""

    dataset: Dataset
    tables: tuple[Table, ...]

    def __len__(self) -> int:
        return self.dataset.rows

    def row(self, number: int) -> PackRow:
        """One row; `NotFound`."""
        table, index = self._place(number)
        return table.rows[index]

    def cells(self, number: int) -> dict[str, GivenInput]:
        """What a row was given; it reads a file."""
        table, index = self._place(number)
        return table.cells(index)

    def vector(self, number: int) -> tuple[str, ...]:
        """The columns of numbers that a row has."""
        return self._place(number)[0].vector

    def labels(self) -> frozenset[str]:
        """Every label."""
        return frozenset(row.label for table in self.tables for row in table.rows)

    def _place(self, number: int) -> tuple[Table, int]:
        left = number
        for table in self.tables if number >= 0 else ():
            if left < len(table.rows):
                return table, left
            left -= len(table.rows)
        raise NotFound(f"dataset '{self.dataset.name}' has no row {number}")
