"""Presence: which replicas a pool has, which of them can be called, and how many are to come.

| a replica                                         | is       |
|---------------------------------------------------|----------|
| answers, and holds what it should                 | ready    |
| answers, and lacks something yet that it came for | starting |
| was not seen yet, or lost not long ago            | starting |
| was lost long ago, and others are ready           | nothing  |
| was lost long ago, as all others, unless the pool | starting |
| may have none                                     |          |
| is about to leave                                 | nothing  |
| was wished for, and has not joined yet            | starting |

A replica that is lost is mostly started anew by whoever runs it, so a hint must not forget it: the
next one would be followed by stopping another. A control plane that has lost sight of a whole pool
must not advise to stop it. One that only loads something is ready all the same.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from serve.control.fleet import Fleet

_PATIENCE, _STARTS = 120.0, 3.0  # seconds, and cold starts, for which a lost replica is expected


@dataclass(frozen=True, slots=True)
class Present:
    """One pool: the names of the replicas that can be called, and how many are to come."""

    ready: tuple[str, ...] = ()
    starting: int = 0


NOBODY = Present()


def ready_of(fleet: Fleet) -> tuple[str, ...]:
    """All replicas that can be called, of all pools."""
    return tuple(
        name for name in fleet.observations if fleet.is_present(name) and name not in fleet.joining
    )


def present(
    fleet: Fleet,
    pools: Iterable[str],
    ready: Collection[str],
    *,
    now: float,
    began: float,
    wished: Mapping[str, int],
    cold_starts: Mapping[str, float],
    sleepers: Collection[str] = (),
) -> dict[str, Present]:
    """Every pool. `began`: since when anybody looks; `wished`: replicas that are yet to join.

    `sleepers`: pools that may have none.
    """
    are_ready, coming = set(ready), dict(wished)
    found: dict[str, list[str]] = {pool: [] for pool in pools}
    gone: dict[str, int] = {}
    for name, one in fleet.observations.items():
        pool = one.replica.pool
        if fleet.is_retired(name):
            continue
        if name in are_ready:
            found.setdefault(pool, []).append(name)
            continue
        patience = max(_PATIENCE, _STARTS * cold_starts.get(pool, 0.0))
        if one.is_up or now - max(one.since, began) < patience:
            coming[pool] = coming.get(pool, 0) + 1
        else:
            gone[pool] = gone.get(pool, 0) + 1
    for pool, count in gone.items():
        if not found.get(pool) and pool not in sleepers:
            coming[pool] = coming.get(pool, 0) + count
    return {
        pool: Present(tuple(sorted(names)), coming.get(pool, 0)) for pool, names in found.items()
    }
