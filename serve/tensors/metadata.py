"""What a model takes and gives, as KServe v2's metadata describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from serve.core.errors import ServegateError
from serve.tensors.datatypes import Shape


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output as metadata describes it; -1 in `shape` is any length."""

    name: str
    datatype: str
    shape: Shape

    @property
    def has_batch(self) -> bool:
        """Whether the first dimension counts the rows of a batch."""
        return self.shape[:1] == (-1,)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model takes and gives."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


def read_metadata(document: Any, model: str) -> Metadata:
    """Read the JSON that a data port answers; an error for what is no metadata."""
    try:
        return Metadata(_specs(document["inputs"]), _specs(document["outputs"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ServegateError(
            f"the metadata of model '{model}' cannot be read",
            why=repr(document)[:200],
            try_this="pass the --url of a data port, not of the admin API",
        ) from error


def _specs(rows: Any) -> Mapping[str, TensorSpec]:
    specs = (
        TensorSpec(str(row["name"]), str(row["datatype"]), tuple(int(n) for n in row["shape"]))
        for row in rows
    )
    return MappingProxyType({spec.name: spec for spec in specs})
