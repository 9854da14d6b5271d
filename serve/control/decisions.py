"""Decisions: what people have set, read out of the store as values.

| kind  | key           | body                                      |
|-------|---------------|-------------------------------------------|
| route | model         | {"split": {"1": 90, "2": 10}}             |
| label | model:label   | {"version": 2}                            |
| model | model         | {"objective": "p99<50ms", "pool": "a100"} |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.control.store import Entry, Key
from serve.core.routes import Split

ROUTE, LABEL, MODEL = "route", "label", "model"
DEFAULT_POOL = "default"
UNSET = Entry(None, 0)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Everything that is set, as one value that is replaced after each change."""

    entries: Mapping[Key, Entry] = field(default_factory=lambda: MappingProxyType({}))

    def entry(self, kind: str, key: str) -> Entry:
        """The stored body and revision of one thing; `UNSET` when nobody has set it."""
        return self.entries.get((kind, key), UNSET)

    def split(self, model: str) -> Split | None:
        """The split that was set for a model."""
        body = self.entry(ROUTE, model).body
        return split_of(body) if body else None

    def labels(self, model: str) -> dict[str, int]:
        """The labels of a model and the versions they name."""
        prefix = f"{model}:"
        return {
            key.removeprefix(prefix): int(entry.body["version"])
            for (kind, key), entry in sorted(self.entries.items())
            if kind == LABEL and key.startswith(prefix)
        }

    def objective(self, model: str) -> str:
        """The objective of a model as it was written; empty when there is none."""
        return str((self.entry(MODEL, model).body or {}).get("objective") or "")

    def pool(self, model: str) -> str:
        """The pool whose replicas hold the model."""
        return str((self.entry(MODEL, model).body or {}).get("pool") or DEFAULT_POOL)


def split_of(body: Mapping[str, Any]) -> Split:
    """The split in a stored route."""
    return Split.of({int(version): int(weight) for version, weight in body["split"].items()})


def label_key(model: str, label: str) -> str:
    """The store's key of a label."""
    return f"{model}:{label}"
