"""Balancing: which replica of a target gets the call. A plain function of its inputs.

The replica with the fewest calls in flight is picked; among equals the turn goes round. Of many
replicas only a few are looked at, others each time, so that a call costs the same in a fleet of
thousands: the least busy of eight is seldom busier than the least busy of all. Calls of a
sequence go to the replica that ranks first in a hash of the sequence and the replica's name
(rendezvous hashing), so that a replica that comes or goes moves only its own sequences. A message
of a stream stays on the replica that the stream already uses.
"""

from collections.abc import Collection, Mapping, Sequence

from serve.core.routes import draw_of

MANY = 64  # replicas, from which on not all of them are looked at
_LOOKED_AT = 8
_STRIDE = 2_654_435_761  # a prime: turns go all over the fleet, and through all of it


def pick(
    names: Sequence[str],
    *,
    loads: Mapping[str, int],
    avoided: Collection[str] = (),
    turn: int,
    sequence: str = "",
    prefer: str = "",
) -> str | None:
    """The name of the replica to try; None when there is none to try. A missing load is none.

    When every replica is being avoided, they are all tried as if none were: an answer that may fail
    is better than a refusal that certainly does.
    """
    if not names:
        return None
    if sequence:
        return max(names, key=lambda name: draw_of(sequence, name))
    if len(names) > MANY and not prefer:
        names, turn = _some(names, avoided, turn), 0
    elif avoided:
        names = [name for name in names if name not in avoided] or names
    if prefer and prefer in names:
        return prefer
    if len(names) == 1:
        return names[0]
    if len(names) == 2:  # the common fleet, without making lists
        first, second = names
        difference = loads.get(first, 0) - loads.get(second, 0)
        return names[turn & 1] if not difference else first if difference < 0 else second
    busy = [loads.get(name, 0) for name in names]
    lowest = min(busy)
    idle = [name for name, load in zip(names, busy, strict=True) if load == lowest]
    return idle[turn % len(idle)]


def _some(names: Sequence[str], avoided: Collection[str], turn: int) -> Sequence[str]:
    """Some of many names, of which none is avoided if there is such a one: by turn others."""
    start = turn * _STRIDE % len(names)
    found = names[start : start + _LOOKED_AT]
    if len(found) < _LOOKED_AT:
        found = [*found, *names[: _LOOKED_AT - len(found)]]
    if avoided:
        usable = [name for name in found if name not in avoided]
        found = usable or [name for name in names if name not in avoided] or found
    return found
