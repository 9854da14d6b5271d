"""The objects of the fake cluster, their versions, and what happened to them lately.

Every change gets the next *resource version*, one count for all kinds, and is an *event*. The
newest events are remembered, so that a watch can go on from the version that it saw last; what is
older is gone, and who asks for it has to list again.

An object that is kept is never changed: a change puts another in its place.
"""

import base64
import itertools
import json
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fake_kubernetes.kinds import Kind, kind_of

Object = dict[str, Any]

_FIRST = 1000  # so that nobody takes a resource version for a count
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """One change: the object after it (None: it is gone) and before it (None: it is new)."""

    version: int
    kind: Kind
    new: Object | None
    old: Object | None


class Objects:
    """All objects. Each one that listens is told of every change at once."""

    def __init__(self) -> None:
        self.version = _FIRST
        self.forgotten = _FIRST  # the events up to here
        self.listeners: list[Callable[[Event], None]] = []
        self._kept: dict[Kind, dict[tuple[str, str], Object]] = {}
        self._history: deque[Event] = deque()

    def __repr__(self) -> str:
        count = sum(map(len, self._kept.values()))
        return f"<Objects: {count} at version {self.version}, history from {self.forgotten}>"

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._kept.get(kind, {}).get((namespace, name))

    def listed(self, kind: Kind, namespace: str) -> list[Object]:
        """Those of a namespace ("": of all), sorted as Kubernetes sorts them."""
        kept = self._kept.get(kind, {})
        return [kept[key] for key in sorted(kept) if namespace in ("", key[0])]

    def put(self, given: Object) -> Object:
        """Create or replace an object, and tell of it."""
        kind = kind_of(given["kind"], given["apiVersion"])
        old = self.get(kind, *key_of(kind, given))
        new = completed(kind, given, old)
        self._keep(kind, new)
        return new

    def delete(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Remove an object, with all that is in it if it is a namespace; what was removed."""
        old = self._kept.get(kind, {}).pop((namespace, name), None)
        if old is None:
            return None
        if kind.name == "Namespace":
            for inner in [each for each in self._kept if each.is_namespaced]:
                for each in self.listed(inner, name):
                    self.delete(inner, name, each["metadata"]["name"])
        self._tell(Event(self._next(), kind, None, old))
        return old

    def since(self, version: int) -> Iterator[Event]:
        """The events after a version, which must not be forgotten."""
        return (event for event in self._history if event.version > version)

    def forget(self) -> None:
        """Forget all events, as if so much had happened since that there was no more room."""
        self._history.clear()
        self.forgotten = self._next()

    def _keep(self, kind: Kind, new: Object) -> None:
        key = key_of(kind, new)
        kept = self._kept.setdefault(kind, {})
        old = kept.get(key)
        version = self._next()
        new["metadata"]["resourceVersion"] = str(version)
        kept[key] = new
        self._tell(Event(version, kind, new, old))

    def _tell(self, event: Event) -> None:
        self._history.append(event)
        if len(self._history) > _REMEMBERED:
            self.forgotten = self._history.popleft().version
        for listener in tuple(self.listeners):
            listener(event)

    def _next(self) -> int:
        self.version += 1
        return self.version


def key_of(kind: Kind, given: Object) -> tuple[str, str]:
    """The namespace ("" for kinds that have none) and the name."""
    metadata = given["metadata"]
    return (metadata.get("namespace", "") if kind.is_namespaced else ""), metadata["name"]


def completed(kind: Kind, given: Object, old: Object | None) -> Object:
    """A copy with what the server adds, but for the resource version."""
    new: Object = json.loads(json.dumps(given))
    metadata = new["metadata"]
    if kind.name == "Secret" and "stringData" in new:
        new["data"] = (new.get("data") or {}) | _encoded(new.pop("stringData") or {})
    kept = (old or {}).get("metadata", {})
    metadata["uid"] = kept.get("uid") or str(uuid.uuid4())
    metadata["creationTimestamp"] = kept.get("creationTimestamp") or _now()
    metadata["resourceVersion"] = kept.get("resourceVersion", "")
    if "spec" in new:
        is_same = old is not None and old.get("spec") == new["spec"]
        metadata["generation"] = kept.get("generation", 0) + (not is_same)
    return new


_NUMBERS = itertools.count(1)


def generated(prefix: str) -> str:
    """A name for `generateName`, which nobody has."""
    return f"{prefix}{next(_NUMBERS):05x}"


def _encoded(texts: dict[str, str]) -> dict[str, str]:

    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
