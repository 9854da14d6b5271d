"""What changes while a run goes on: states of replicas, and revisions in the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from serve.load.observed import ObservedEvent


class Changes:
    """Compares what is told with what was told before; a difference is a mark."""

    def __init__(self) -> None:
        self._states: dict[str, str] | None = None
        self._avoided: frozenset[str] = frozenset()
        self._revision: int | None = None
        self._marks: list[ObservedEvent] = []

    def __repr__(self) -> str:
        return f"<Changes {len(self._marks)}>"

    @property
    def marks(self) -> tuple[ObservedEvent, ...]:
        """In the order of time."""
        return tuple(sorted(self._marks, key=lambda mark: mark.at))

    def mark(self, at: float, text: str) -> None:
        """Something that somebody else knows of."""
        self._marks.append(ObservedEvent(round(at, 3), text))

    def replicas(self, at: float, page: Iterable[Mapping[str, Any]]) -> None:
        """`/api/replicas`; the first one is what there was."""
        told = {str(one["name"]): one for one in page}
        states = {name: str(one["state"]) for name, one in told.items()}
        if self._states is not None:
            for name in self._states.keys() - states.keys():
                self.mark(at, f"{name} was removed")
            for name, state in states.items():
                if self._states.get(name) != state:
                    why = str(told[name].get("why") or "")
                    self.mark(at, f"{name} is {state}" + (f": {why}" if why else ""))
        self._states = states

    def avoided(self, at: float, names: frozenset[str]) -> None:
        """The replicas that workers avoid."""
        for name in sorted(names - self._avoided):
            self.mark(at, f"the gateway does not call {name}")
        for name in sorted(self._avoided - names):
            self.mark(at, f"the gateway calls {name} again")
        self._avoided = names

    def revisions(self, earliest: float, at: float, zero: float, page: Iterable[Any]) -> None:
        """`/api/history`, the newest first; the first one is what there was.

        `zero` is the Unix time of second 0 by our clock. Theirs may go wrong: a revision that is
        new lies between the look before, `earliest`, and this one.
        """
        told = list(page)
        newest = max((int(one["revision"]) for one in told), default=0)
        if self._revision is not None:
            for one in told:
                if int(one["revision"]) > self._revision:
                    when = datetime.fromisoformat(str(one["at"])).timestamp() - zero
                    self.mark(min(max(when, earliest), at), _sentence(one))
        self._revision = max(newest, self._revision or 0)


def _sentence(one: Mapping[str, Any]) -> str:
    thing = f"{one['kind']} {one['key']}".strip()
    return f"revision {one['revision']}: {thing}: {one['summary']}".rstrip(": ")
