"""The snapshot: the immutable, compiled view of models, routes and replicas that serves calls.

The control plane compiles it, the workers swap it whole, a call reads it once. `to_json` and
`from_json` are the form in which it travels and in which it is kept on disk; `from_json` checks
everything, so that a snapshot that exists is a snapshot that can be served.

Most versions are held by the same replicas. So each set of holders is written once, in `holders`,
and a target says its number there: a fleet of n replicas with m models is n names long, not n · m.
Format 2, which named them in each target, can still be read.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.core.access import ApiKey, Role
from serve.core.errors import Invalid
from serve.core.replicas import Replica
from serve.core.routes import Route

FORMAT = 3
BY_NAME = 2  # the format whose targets name their holders
LAST_GENERATION = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class VersionTarget:
    """One version as the data plane reaches it: its names in Triton, and who holds it.

    `calls_others` says that it is an ensemble or runs code: its answer may come from another model
    that it called, and a refusal, too.
    """

    model: str
    version: int
    physical_name: str
    physical_version: int
    flavour: str
    replicas: tuple[str, ...]
    calls_others: bool = False


@dataclass(frozen=True, slots=True)
class ComparedOutputs:
    """How the outputs of a model are compared with those of a mirror's candidate.

    `declared` is the candidate's `outputs.json`, checked; `labelled` outputs have label texts;
    `is_batched` says that the first dimension counts rows.
    """

    declared: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    labelled: tuple[str, ...] = ()
    is_batched: bool = False


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model: its targets by version, its labels, its route, and whether it serves sequences.

    `route` is the one that was set, or else the highest ready version gets all calls; `routed` says
    which of the two it is. A model none of whose versions is ready has an empty `targets`; `failed`
    tells one that could not be loaded from one that is still loading. `asleep` says that its pool
    may have no replica, and has none that holds all of it: calls for what is missing may wait.
    `compared` is set if the route has a mirror.
    """

    name: str
    targets: Mapping[int, VersionTarget]
    labels: Mapping[str, int]
    route: Route | None
    routed: bool = False
    sequences: bool = False
    failed: bool = False
    asleep: bool = False
    compared: ComparedOutputs | None = None

    @property
    def called(self) -> frozenset[int]:
        """The versions that calls without a version may go to, except a fallback."""
        return self.route.called if self.route else frozenset()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a worker needs to serve calls; generations only ever rise.

    `guarded` says that there is or was an API key: from then on calls need one. `keys` are those
    that are valid (some may have expired).
    """

    generation: int
    models: Mapping[str, ModelView] = field(default_factory=lambda: MappingProxyType({}))
    replicas: Mapping[str, Replica] = field(default_factory=lambda: MappingProxyType({}))
    keys: Mapping[str, ApiKey] = field(default_factory=lambda: MappingProxyType({}))
    guarded: bool = False

    def same_content(self, other: "Snapshot") -> bool:
        """Whether the two differ in nothing but their generation."""
        return dataclasses.replace(self, generation=other.generation) == other

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        numbers: dict[tuple[str, ...], int] = {}
        models = {name: _model_to_json(model, numbers) for name, model in self.models.items()}
        return {
            "format": FORMAT,
            "generation": self.generation,
            "models": models,
            "holders": [list(holders) for holders in numbers],
            "replicas": {
                name: {"address": replica.address, "pool": replica.pool}
                for name, replica in self.replicas.items()
            },
            "keys": {key.id: _key_to_json(key) for key in self.keys.values()},
            "guarded": self.guarded,
        }

    @classmethod
    def from_json(cls, data: Any) -> "Snapshot":
        """Read and check what `to_json` gave; anything that does not hold together is `Invalid`."""
        try:
            if data["format"] not in (FORMAT, BY_NAME):
                raise Invalid(f"the snapshot's format {data['format']} is not supported")
            replicas = {
                str(name): Replica.parse(item["address"], name=str(name), pool=str(item["pool"]))
                for name, item in data["replicas"].items()
            }
            find = _finder(data, replicas)
            models = {
                str(name): _model_from_json(str(name), item, find)
                for name, item in data["models"].items()
            }
            keys = {
                str(name): _key_from_json(str(name), item) for name, item in data["keys"].items()
            }
            generation, guarded = int(data["generation"]), data["guarded"]
            if not isinstance(guarded, bool):
                raise Invalid(f"'guarded' must be true or false, not {guarded!r}")
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Invalid("the snapshot is malformed", why=repr(error)) from error
        if not 0 <= generation <= LAST_GENERATION:
            raise Invalid(f"the snapshot's generation {generation} is out of range")
        return cls(
            generation,
            MappingProxyType(models),
            MappingProxyType(replicas),
            MappingProxyType(keys),
            guarded or bool(keys),
        )


def _key_to_json(key: ApiKey) -> dict[str, Any]:
    return {
        "digest": key.digest,
        "role": key.role.value,
        "models": list(key.models),
        "expires": key.expires,
    }


def _key_from_json(name: str, item: Any) -> ApiKey:
    expires = item["expires"]
    if not isinstance(item["models"], list):
        raise Invalid(f"the models of key '{name}' are not a list")
    return ApiKey(
        id=name,
        digest=str(item["digest"]),
        role=Role(item["role"]),
        models=tuple(str(pattern) for pattern in item["models"]),
        expires=None if expires is None else float(expires),
    )


def _model_to_json(model: ModelView, numbers: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """`numbers` are those of the sets of holders; it learns new ones."""
    compared = model.compared
    return {
        **({} if compared is None else {"compared": _compared_to_json(compared)}),
        "labels": dict(model.labels),
        **(model.route.to_json() if model.route else {"split": None}),
        "routed": model.routed,
        "sequences": model.sequences,
        "failed": model.failed,
        "asleep": model.asleep,
        "targets": {
            str(version): {
                "physical_name": target.physical_name,
                "physical_version": target.physical_version,
                "flavour": target.flavour,
                "replicas": numbers.setdefault(target.replicas, len(numbers)),
                "calls_others": target.calls_others,
            }
            for version, target in model.targets.items()
        },
    }


def _compared_to_json(compared: ComparedOutputs) -> dict[str, Any]:
    return {
        "declared": dict(compared.declared),
        "labelled": list(compared.labelled),
        "is_batched": compared.is_batched,
    }


def _compared_from_json(item: Any) -> ComparedOutputs | None:
    if not item:
        return None
    labelled = tuple(map(str, item["labelled"]))
    return ComparedOutputs(dict(item["declared"]), labelled, bool(item["is_batched"]))


def _finder(data: Any, replicas: Mapping[str, Replica]) -> Callable[[Any], tuple[str, ...]]:
    """What gives the holders that a target names, checked."""
    if data["format"] == BY_NAME:
        return lambda names: _holders(names, replicas)
    sets = [_holders(names, replicas) for names in data["holders"]]

    def find(number: Any) -> tuple[str, ...]:
        if type(number) is not int or not 0 <= number < len(sets):
            raise Invalid(f"a target refers to replica set {number!r} of {len(sets)}")
        return sets[number]

    return find


def _holders(names: Any, replicas: Mapping[str, Replica]) -> tuple[str, ...]:
    holders = tuple(map(str, names))
    known = replicas.keys() & holders
    if len(known) < len(holders):
        strange = ", ".join(sorted(set(holders) - known)) or "a name occurs twice"
        raise Invalid("a target refers to unknown or repeated replicas", why=strange)
    return holders


def _model_from_json(name: str, item: Any, find: Callable[[Any], tuple[str, ...]]) -> ModelView:
    targets = {}
    for version, entry in item["targets"].items():
        if not entry["physical_name"]:
            raise Invalid(f"version {version} of model '{name}' has no Triton name")
        targets[int(version)] = VersionTarget(
            model=name,
            version=int(version),
            physical_name=str(entry["physical_name"]),
            physical_version=int(entry["physical_version"]),
            flavour=str(entry["flavour"]),
            replicas=find(entry["replicas"]),
            calls_others=entry.get("calls_others") is not False,  # older ones do not say
        )
    return ModelView(
        name=name,
        targets=MappingProxyType(targets),
        labels=MappingProxyType({str(k): int(v) for k, v in item["labels"].items()}),
        route=Route.from_json(item) if item["split"] else None,
        routed=bool(item["routed"]),
        sequences=bool(item["sequences"]),
        failed=bool(item["failed"]),
        asleep=bool(item.get("asleep", False)),  # older ones do not say
        compared=_compared_from_json(item.get("compared")),
    )
