"""Balancing: which replica of a target gets the call. A plain function of its inputs.

The replica with the fewest calls in flight is picked; among equals the turn goes round. Calls of a
sequence go to the replica that ranks first in a hash of the sequence and the replica's name
(rendezvous hashing), so that a replica that comes or goes moves only its own sequences. A message
of a stream stays on the replica that the stream already uses.
"""

from collections.abc import Collection, Mapping, Sequence

from serve.core.routes import draw_of


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
    if avoided:
        names = [name for name in names if name not in avoided] or names
    if prefer in names:
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
