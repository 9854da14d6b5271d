"""What is recorded with a version for those who give it input, wherever the version comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.control.models import Models
from serve.triton.config import Configuration

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RecordedDocuments:
    """The document of the preprocessing; label texts, and what is declared, by output.

    `optional`: the inputs that a call may leave out.
    """

    preprocessing: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    labels: Mapping[str, Sequence[str]] = field(default_factory=lambda: _NOTHING)
    optional: frozenset[str] = frozenset()
    output_kinds: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


def recorded_of(models: Models, model: str, number: int | None) -> RecordedDocuments:
    """Of this version, or of the newest where none is named. `UnknownModel`, `UnknownVersion`.

    Published versions each have their own record, versions in a plain folder that of the folder.
    """
    status = models.get(model)
    one = status.model.newest
    if number is not None:
        models.version(model, number)
        published = models.decisions.versions.get(model, {}).get(number)
        if published is not None:
            return RecordedDocuments(
                published.preprocessing,
                published.output_labels,
                _optional(published.configuration),
                published.output_kinds,
            )
        one = status.model.holding(number)
    if one is None:
        return RecordedDocuments()
    return RecordedDocuments(
        one.preprocessing, one.labels, _optional(one.configuration), one.output_kinds
    )


def _optional(configuration: Configuration | None) -> frozenset[str]:
    inputs = configuration.message.input if configuration else ()
    return frozenset(one.name for one in inputs if one.optional)
