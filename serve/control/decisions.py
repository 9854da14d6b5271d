"""Decisions: what people have set, read out of the store as values.

| kind          | key            | body                                      |
|---------------|----------------|-------------------------------------------|
| route         | model          | {"split": {"1": 90, "2": 10}}             |
| label         | model:label    | {"version": 2}                            |
| model         | model          | {"objective": "p99<50ms", "pool": "a100"} |
| serving       | model          | {"unloaded": true} or {"config": "{…}"}   |
| trace         | model or empty | {"trace_level": ["TIMESTAMPS"]}           |
| logging       | empty          | {"log_verbose_level": 1}                  |
| key           | the key's id   | {"digest": "…", "role": "predictor", …}   |
| version       | model:number   | see `control/versions.py`                 |
| conversion    | its id         | see `control/stored_conversions.py`       |
| contract      | model:number   | see `control/added_cases.py`              |
| configuration | name in Triton | see `control/revision.py`                 |
| pool          | pool           | see `control/scaling/pools.py`            |

A key that is revoked stays, marked so: a gateway that has had a key is never open again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.control.storage.store import Key, StoredEntry
from serve.control.versions import VERSION, PublishedVersion, version_of
from serve.core.access import ApiKey as AccessKey
from serve.core.access import Role
from serve.core.routes import Route
from serve.core.versions import VersionState

ROUTE, LABEL, MODEL, KEY = "route", "label", "model", "key"
SERVING, TRACE, LOGGING = "serving", "trace", "logging"
POOL = "pool"
DEFAULT_POOL = "default"
UNSET = StoredEntry(None, 0)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Everything that is set, as one value that is replaced after each change."""

    entries: Mapping[Key, StoredEntry] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, Mapping[int, PublishedVersion]] = field(
        init=False, repr=False, compare=False
    )
    groups: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    decided_pools: frozenset[str] = field(init=False, repr=False, compare=False)
    _labels: Mapping[str, dict[str, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the versions by model and number, and which pools are set, by group."""
        found: dict[str, dict[int, PublishedVersion]] = {}
        groups: dict[str, list[str]] = {}
        labels: dict[str, dict[str, int]] = {}
        for (kind, key), entry in self.entries.items():
            if kind == VERSION:
                version = version_of(key, entry.body, entry.etag)
                found.setdefault(version.model, {})[version.number] = version
            elif kind == POOL and entry.body and entry.body.get("group"):
                groups.setdefault(str(entry.body["group"]), []).append(key)
            elif kind == LABEL:
                model, _, label = key.partition(":")
                labels.setdefault(model, {})[label] = int(entry.body["version"])
        ordered = {
            model: MappingProxyType(dict(sorted(found[model].items()))) for model in sorted(found)
        }
        object.__setattr__(self, "versions", MappingProxyType(ordered))
        together = {name: tuple(sorted(pools)) for name, pools in sorted(groups.items())}
        object.__setattr__(self, "groups", MappingProxyType(together))
        pools = frozenset(key for kind, key in self.entries if kind == POOL)
        object.__setattr__(self, "decided_pools", pools)
        by_name = {model: dict(sorted(its.items())) for model, its in labels.items()}
        object.__setattr__(self, "_labels", by_name)

    def entry(self, kind: str, key: str) -> StoredEntry:
        """The stored body and revision of one thing; `UNSET` when nobody has set it."""
        return self.entries.get((kind, key), UNSET)

    def route(self, model: str) -> Route | None:
        """The route that was set for a model."""
        body = self.entry(ROUTE, model).body
        return Route.from_json(body) if body else None

    def labels(self, model: str) -> dict[str, int]:
        """The labels of a model and the versions they name."""
        return dict(self._labels.get(model, {}))

    def objective(self, model: str) -> str:
        """The objective of a model as it was written; empty when there is none."""
        return str((self.entry(MODEL, model).body or {}).get("objective") or "")

    def pool(self, model: str) -> str:
        """The pool that was chosen for the model; its replicas hold it, see `pools`."""
        return str((self.entry(MODEL, model).body or {}).get("pool") or DEFAULT_POOL)

    def pools(self, model: str) -> tuple[str, ...]:
        """The pools whose replicas hold the model: its own and those of its group, by name."""
        return self.beside(self.pool(model))

    def beside(self, pool: str) -> tuple[str, ...]:
        """A pool and those of its group, by name; each holds the models of all of them."""
        return self.groups.get(self.group(pool), (pool,))

    def group(self, pool: str) -> str:
        """The group that a pool belongs to; empty while it stands alone."""
        return str((self.entry(POOL, pool).body or {}).get("group") or "")

    def is_unloaded(self, model: str) -> bool:
        """Whether somebody has unloaded the model, whatever its folder says."""
        return bool((self.entry(SERVING, model).body or {}).get("unloaded"))

    def override(self, model: str) -> str | None:
        """The configuration, as JSON, that is in force instead of config.pbtxt."""
        config = (self.entry(SERVING, model).body or {}).get("config")
        return None if config is None else str(config)

    def server_settings(self) -> dict[Key, dict[str, Any]]:
        """What was set of Triton's own settings, by kind (`TRACE`, `LOGGING`) and model."""
        return {
            key: entry.body for key, entry in self.entries.items() if key[0] in (TRACE, LOGGING)
        }

    @property
    def known_models(self) -> frozenset[str]:
        """The models of which there is or was a version record that still means something."""
        return frozenset(
            model
            for model, versions in self.versions.items()
            if any(version.state is not VersionState.REMOVED for version in versions.values())
        )

    @property
    def guarded(self) -> bool:
        """Whether there is an API key, or ever was one."""
        return any(kind == KEY for kind, _ in self.entries)

    def keys(self) -> dict[str, AccessKey]:
        """The API keys that are not revoked, by id; some may have expired."""
        return {
            identity: key_of(identity, entry.body)
            for (kind, identity), entry in sorted(self.entries.items())
            if kind == KEY and not entry.body.get("revoked")
        }


def key_of(identity: str, body: Mapping[str, Any]) -> AccessKey:
    """The API key in a stored body."""
    return AccessKey(
        identity, body["digest"], Role(body["role"]), tuple(body["models"]), body["expires"]
    )


def label_key(model: str, label: str) -> str:
    """The store's key of a label."""
    return f"{model}:{label}"
