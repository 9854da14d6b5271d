"""Merging: statistics and repository index of many Tritons, told as if they were one.

Values are those of Triton's JSON: dictionaries in Triton's order of keys, lists, whole numbers.
With one replica the merged answer says what that replica said.

Counters only ever rise, because clients subtract what they read before from what they read after.
A Triton starts again at zero when a version is loaded anew, and takes its counters along when it
goes; what it had counted stays in the sum:

    a replica's share of a version = what it had counted before its last fall + what it counts now
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.core.names import model_of
from serve.core.snapshot import Snapshot

Entry = dict[str, Any]
Own = tuple[str, str]  # a model's own name, and a version as Triton writes it
Sees = Callable[[str], bool]

_LATEST = "last_inference"  # milliseconds of the epoch
_MEMORY = "memory_usage"
_GAUGES = frozenset({_MEMORY, _LATEST})  # what may fall by itself
_NAMED_BY = {"batch_stats": ("batch_size",), _MEMORY: ("type", "id")}


class StatisticsNames:
    """Which model and version a physical name and version of a Triton belong to."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._models = snapshot.models
        self._own = {
            (target.physical_name, str(target.physical_version)): (name, str(target.version))
            for name, model in snapshot.models.items()
            for target in model.targets.values()
        }

    def own(self, physical: str, version: str) -> Own:
        """The model's own name and version, as far as the snapshot knows."""
        known = self._own.get((physical, version))
        return known or (model_of(physical, self._models), version)


# --- the repository index -------------------------------------------------------------------------


def index(answers: Iterable[Sequence[Entry]], names: StatisticsNames, sees: Sees) -> list[Entry]:
    """One index of all: a version is READY when it is ready anywhere.

    A model that a Triton has never loaded has no version there; that says nothing where another
    one has loaded it. Models that the caller may not see are left out.
    """
    found: dict[Own, Entry] = {}
    for entries in answers:
        for entry in entries:
            own = names.own(entry["name"], entry.get("version", ""))
            if sees(own[0]) and (own not in found or _is_readier(entry, found[own])):
                found[own] = _renamed(entry, own)
    loaded = {name for name, version in found if version}
    return [found[own] for own in sorted(found, key=_order) if own[1] or own[0] not in loaded]


def _is_readier(entry: Entry, other: Entry) -> bool:
    return entry.get("state") == "READY" and other.get("state") != "READY"


# --- statistics -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Share:
    """What one replica contributes: `kept` from before its counters fell, `now` what it counts."""

    now: Entry
    kept: Entry | None = None

    def told(self, entry: Entry) -> None:
        if has_fallen(self.now, entry):
            self.kept = self.whole(settled=True)
        self.now = entry

    def whole(self, *, settled: bool) -> Entry:
        now = _settled(self.now) if settled else self.now
        return now if self.kept is None else add(self.kept, now)


class ReplicaTally:
    """What every replica has ever counted, as far as one worker has been told.

    A version that no replica has any more is forgotten with the next complete question.
    """

    def __init__(self) -> None:
        self._shares: dict[Own, dict[tuple[str, str, str], _Share]] = {}

    def __repr__(self) -> str:
        return f"<ReplicaTally versions={len(self._shares)}>"

    def merged(
        self,
        answers: Mapping[str, Sequence[Entry]],
        names: StatisticsNames,
        sees: Sees,
        *,
        is_complete: bool = False,
    ) -> list[Entry]:
        """The sums of those versions that were told of; `answers` are entries by replica.

        `is_complete` says that all replicas were asked for everything, and answered.
        """
        told: dict[Own, set[tuple[str, str, str]]] = {}
        for replica, entries in answers.items():
            for entry in entries:
                own = names.own(entry["name"], entry["version"])
                key = (replica, entry["name"], entry["version"])
                told.setdefault(own, set()).add(key)
                shares = self._shares.setdefault(own, {})
                if key in shares:
                    shares[key].told(entry)
                else:
                    shares[key] = _Share(entry)
        if is_complete:
            self._shares = {own: self._shares[own] for own in self._shares if own in told}
        seen = sorted((own for own in told if sees(own[0])), key=_order)
        return [_renamed(self._sum(own, told[own]), own) for own in seen]

    def _sum(self, own: Own, told: set[tuple[str, str, str]]) -> Entry:
        shares = self._shares[own]
        first, *others = (share.whole(settled=key not in told) for key, share in shares.items())
        for other in others:
            first = add(first, other)
        return first


def add(left: Entry, right: Entry) -> Entry:
    """Two entries of the same shape together: counters are summed, the later time counts."""
    keys = dict.fromkeys((*left, *right))
    return {key: _both(key, left, right) for key in keys}


def has_fallen(before: Entry, now: Entry) -> bool:
    """Whether any counter is less than it was."""
    return any(_is_less(key, value, now.get(key)) for key, value in before.items())


def _both(key: str, left: Entry, right: Entry) -> Any:
    if key not in left or key not in right:
        return left.get(key, right.get(key))
    a, b = left[key], right[key]
    if isinstance(a, dict):
        return add(a, b)
    if isinstance(a, list):
        return _rows(a, b, _NAMED_BY.get(key, ()))
    if not isinstance(a, int):
        return a
    return max(a, b) if key == _LATEST else a + b


def _rows(left: list[Entry], right: list[Entry], named_by: tuple[str, ...]) -> list[Entry]:
    """Lists whose rows are told apart by some of their keys."""
    rows: dict[tuple[Any, ...], Entry] = {}
    for row in (*left, *right):
        name = tuple(row.get(key) for key in named_by)
        rows[name] = {**add(rows[name], row), **_only(row, named_by)} if name in rows else row
    return [rows[name] for name in sorted(rows)]


def _is_less(key: str, before: Any, now: Any) -> bool:
    if key in _GAUGES:
        return False
    if isinstance(before, dict):
        return has_fallen(before, now or {})
    if isinstance(before, list):
        named_by = _NAMED_BY.get(key, ())
        later = {tuple(row.get(one) for one in named_by): row for row in now or ()}
        named = ((tuple(row.get(one) for one in named_by), row) for row in before)
        return any(has_fallen(_without(row, named_by), later.get(n, {})) for n, row in named)
    return isinstance(before, int) and before > (now or 0)


def _settled(entry: Entry) -> Entry:
    """What stays of a replica's entry when it is gone: it uses no memory."""
    return {key: [] if key == _MEMORY else value for key, value in entry.items()}


def _only(row: Entry, keys: tuple[str, ...]) -> Entry:
    return {key: row[key] for key in keys if key in row}


def _without(row: Entry, keys: tuple[str, ...]) -> Entry:
    return {key: value for key, value in row.items() if key not in keys}


def _renamed(entry: Entry, own: Own) -> Entry:
    name, version = own
    return {**entry, "name": name, **({"version": version} if version else {})}


def _order(own: Own) -> tuple[str, int, str]:
    """By name, then by number: the order in which Triton writes them."""
    name, version = own
    return (name, int(version) if version.isascii() and version.isdigit() else 0, version)
