"""Version records for tests: published at once, with as little as a record needs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from serve.control.decisions import Decisions
from serve.control.storage.store import Key, StoredEntry
from serve.control.versions import VERSION, PublishedVersion
from serve.core.versions import Provenance, VersionState

CONFIG = 'backend: "onnxruntime"\n'


def version(model: str = "m", number: int = 1, **more: Any) -> PublishedVersion:
    """A published version; `more` are other fields."""
    fields: dict[str, Any] = {
        "state": VersionState.PUBLISHED,
        "content": f"content of {model} {number}",
        "provenance": Provenance("ann", 0.0),
        "physical": model,
        "group": "0" * 64,
        "config": CONFIG,
        "size": 100,
    }
    return PublishedVersion(model=model, number=number, **(fields | more))


def decided(*versions: PublishedVersion, **other: Any) -> Decisions:
    """Decisions with these records; `other` are bodies by `kind__key`, such as `route__m`."""
    entries: dict[Key, StoredEntry] = {
        (VERSION, one.key): StoredEntry(one.to_body(), at + 1) for at, one in enumerate(versions)
    }
    for name, body in other.items():
        kind, _, key = name.partition("__")
        entries[kind, key.replace("__", ":")] = StoredEntry(body, 100)
    return Decisions(MappingProxyType(entries))


def split(**weights: int) -> Mapping[str, Any]:
    """The body of a route: `split(v1=90, v2=10)`."""
    return {"split": {name.removeprefix("v"): weight for name, weight in weights.items()}}
