"""Groups: which part of what a group of pools is called for each of its pools is to bear.

The cheapest pool that meets the objective bears a model's calls as far as it has room, then the
next one. Of replicas that run anyway, because at least so many have to, room costs nothing more.
Where two models want the same room, the one has it for which going elsewhere costs more:

    price(model, pool) = cost ÷ capacity                 per call, on a replica that is always busy
    worth of room      = (price elsewhere − price here) · capacity       per replica of that room

For two pools without replicas that have to run it is the cheapest division there is; for others it
comes close. So that readings that waver move nobody, a pool that bears most of a model keeps it
until another one is a tenth cheaper.

Hints of a group are then made per pool, of its part of the calls: `shares` in, one `PoolSignal` for
each pool with `part_of` its models out. The replicas themselves share calls as they come, by load.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from serve.capacity.scaling.signals import ModelSignal

UP = 0.85  # share of its capacity that a replica is asked to bear, as in a pool of ten
KEEPING = 0.9  # of its price counts where a pool bears most of a model already
Shares = Mapping[str, Mapping[str, float]]  # pool → model → part of the model's calls, 0 to 1
_NONE: Shares = MappingProxyType({})
_TINY = 1e-9  # replicas, and parts of calls, that are none


@dataclass(frozen=True, slots=True)
class Offer:
    """What one pool of a group could bear.

    `cost`: of a replica per hour. `least`, `most`: replicas that it must and may have. `ready`:
    replicas that it has. `capacities`: calls per second of one replica, by model, under the model's
    objective; 0 where it cannot meet the objective, None where nobody knows it yet.
    """

    pool: str
    cost: float
    least: int
    most: int
    capacities: Mapping[str, float | None]
    ready: int = 0


@dataclass(slots=True)
class _Room:
    """Replicas of a pool that are free to be used, each at a cost."""

    offer: Offer
    cost: float
    left: float


def shares(demand: Mapping[str, float], offers: Sequence[Offer], before: Shares = _NONE) -> Shares:
    """Divide each model's calls; what every pool gets of a model sums up to 1.

    `demand`: calls per second by model. `before`: what was answered last. What no pool has room for
    goes where least is known, so that this becomes known, or else to the cheapest, beyond what it
    may have. Without an offer nobody gets anything.
    """
    found: dict[str, dict[str, float]] = {one.pool: {} for one in offers}
    if not offers:
        return found
    rooms = _rooms(offers)
    rates = {model: max(0.0, rate) if rate == rate else 0.0 for model, rate in demand.items()}
    left = dict.fromkeys(rates, 1.0)
    while left:
        choices = [_choice(model, rooms, before) for model in sorted(left)]
        _, model, room = max(choices, key=lambda one: one[0])
        if room is None:
            break  # and so for all others: what has no room is worth least
        capacity = room.offer.capacities[model] or math.nan
        needed = rates[model] * left[model] / (UP * capacity)
        part = left[model] if needed <= room.left else left[model] * room.left / needed
        room.left -= min(needed, room.left)
        _add(found[room.offer.pool], model, part)
        left[model] -= part
        if left[model] <= _TINY:
            del left[model]
    for model, part in left.items():
        for pool, share in _beyond(model, offers).items():
            _add(found[pool], model, part * share)
    return found


def part_of(model: ModelSignal, share: float) -> ModelSignal:
    """What a pool sees of a model whose calls it is to bear a part of.

    A pool that is to bear none need not grow because calls are too slow.
    """
    return replace(
        model,
        recent=model.recent * share,
        lately=model.lately * share,
        waiting=model.waiting * share,
        missed=model.missed if share else None,
    )


def _rooms(offers: Iterable[Offer]) -> list[_Room]:
    rooms = []
    for one in offers:
        forced = min(one.least, one.most)
        rooms.append(_Room(one, 0.0, float(forced)))
        rooms.append(_Room(one, one.cost, float(one.most - forced)))
    return rooms


def _choice(
    model: str, rooms: Sequence[_Room], before: Shares
) -> tuple[tuple[float, float], str, _Room | None]:
    """The best room for a model, and what it is worth to have it; least of all where none is."""
    able = [
        (_price(model, room, before), _price_of(model, room.offer), room)
        for room in rooms
        if room.left > _TINY and (room.offer.capacities.get(model) or 0.0) > 0
    ]
    if not able:
        return (-math.inf, 0.0), model, None
    able.sort(key=lambda one: one[:2])
    price, _, best = able[0]
    elsewhere = [one[0] for one in able if one[2].offer.pool != best.offer.pool]
    worth = math.inf
    if elsewhere:
        worth = (elsewhere[0] - price) * (best.offer.capacities[model] or 0.0)
    return (worth, -price), model, best


def _price(model: str, room: _Room, before: Shares) -> float:
    keeps = before.get(room.offer.pool, {}).get(model, 0.0) > 0.5
    return (KEEPING if keeps else 1.0) * room.cost / (room.offer.capacities[model] or math.nan)


def _price_of(model: str, offer: Offer) -> float:
    """What a call costs on a replica that is bought for it; nothing else decides among the free."""
    capacity = offer.capacities.get(model) or 0.0
    return offer.cost / capacity if capacity > 0 else math.inf


def _beyond(model: str, offers: Sequence[Offer]) -> dict[str, float]:
    """Who bears what nobody has room for, all being known that can be."""
    unknown = [one for one in offers if one.capacities.get(model) is None and one.most > 0]
    if len(unknown) == len(offers):
        ready = {one.pool: one.ready for one in offers}
        total = sum(ready.values())
        if total:
            return {pool: count / total for pool, count in ready.items() if count}
    if unknown:
        return {min(unknown, key=lambda one: one.cost).pool: 1.0}
    cheapest = min(offers, key=lambda one: (one.most <= 0, _price_of(model, one), one.cost))
    return {cheapest.pool: 1.0}


def _add(parts: dict[str, float], model: str, part: float) -> None:
    parts[model] = parts.get(model, 0.0) + part
