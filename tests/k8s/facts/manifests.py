"""The manifests as they are applied: objects, and every value in them by its path.

A value is shown as `Deployment/servegate-gateway spec.template.spec.containers[gateway].image`: an
element of a list goes by its name where it has one. Nothing here is changed in place: `with_value`
makes other manifests, which share all objects but one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Steps = tuple[str | int, ...]
Object = Mapping[str, Any]
GONE = object()
_NAMES = ("name", "mountPath", "key", "alert", "containerPort", "ip")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value. `where` is the object, `path` how people find it there, `steps` how we do."""

    where: str
    path: str
    value: Any
    number: int  # of the object among the manifests
    steps: Steps

    def __str__(self) -> str:
        return f"{self.where} {self.path}"


@dataclass(frozen=True, slots=True)
class Manifests:
    """What one folder renders to. `name` says which."""

    name: str
    objects: tuple[Object, ...]

    def of(self, *kinds: str) -> Iterator[Object]:
        return (one for one in self.objects if one.get("kind") in kinds)

    def named(self, kind: str, name: str) -> Object | None:
        return next((one for one in self.of(kind) if name_of(one) == name), None)

    def leaves(self) -> Iterator[Leaf]:
        """Every value that holds no further ones."""
        for number, one in enumerate(self.objects):
            for path, steps, value in _walk(one, "", ()):
                yield Leaf(label_of(one), path, value, number, steps)

    def with_value(self, number: int, steps: Steps, value: Any) -> "Manifests":
        """The same with another value in one place; with `GONE`, without it."""
        changed = _put(self.objects[number], steps, value)
        before, after = self.objects[:number], self.objects[number + 1 :]
        return Manifests(self.name, (*before, changed, *after))


def name_of(one: Object) -> str:
    return str(one.get("metadata", {}).get("name", ""))


def label_of(one: Object) -> str:
    """As messages call it: `Service/servegate`."""
    return f"{one.get('kind')}/{name_of(one)}"


def dig(value: Any, path: str) -> Any:
    """What is below keys with dots between them; None where there is nothing."""
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def each(value: Any, path: str) -> list[dict[str, Any]]:
    """The mappings in lists below each other: `spec.rules spec.paths` are two lists."""
    found = [value]
    for part in path.split():
        found = [held for one in found for held in items(dig(one, part))]
    return found


def items(value: Any) -> list[dict[str, Any]]:
    """The mappings in a list; of what is no list, none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    """A mapping; of what is none, an empty one."""
    return value if isinstance(value, dict) else {}


def _walk(value: Any, path: str, steps: Steps) -> Iterator[tuple[str, Steps, Any]]:
    if isinstance(value, Mapping) and value:
        for key, held in value.items():
            yield from _walk(held, f"{path}.{key}" if path else str(key), (*steps, key))
    elif isinstance(value, list) and value:
        for index, held in enumerate(value):
            yield from _walk(held, f"{path}[{_called(held, index)}]", (*steps, index))
    else:
        yield path, steps, value


def _called(held: Any, index: int) -> str:
    if isinstance(held, Mapping):
        for key in _NAMES:
            if key in held:
                return str(held[key]).replace(" ", "_")
    return str(index)


def _put(value: Any, steps: Steps, new: Any) -> Any:
    if not steps:
        return new
    step, *rest = steps
    if isinstance(value, list):
        assert isinstance(step, int)
        inner = new if not rest else _put(value[step], tuple(rest), new)
        middle = [] if inner is GONE else [inner]
        return [*value[:step], *middle, *value[step + 1 :]]
    inner = new if not rest else _put(value[step], tuple(rest), new)
    if inner is GONE:
        return {key: held for key, held in value.items() if key != step}
    return {key: inner if key == step else held for key, held in value.items()}
