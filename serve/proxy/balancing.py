"""Balancing: which replica of a target gets the call. A plain function of its inputs.

The replica with the fewest calls in flight is picked; among equals the turn goes round. Calls of a
sequence go to the replica that ranks first in a hash of the sequence and the replica's name
(rendezvous hashing), so that a replica that comes or goes moves only its own sequences.
"""

from collections.abc import Callable, Sequence

from serve.core.routes import draw_of


def pick(
    names: Sequence[str],
    *,
    load: Callable[[str], int],
    is_usable: Callable[[str], bool],
    turn: int,
    sequence: str = "",
) -> str | None:
    """The name of the replica to try; None when there is none to try.

    When every replica is being avoided, they are all tried as if none were: an answer that may fail
    is better than a refusal that certainly does.
    """
    if not names:
        return None
    if sequence:
        return max(names, key=lambda name: draw_of(sequence, name))
    usable = [name for name in names if is_usable(name)] or names
    if len(usable) == 1:
        return usable[0]
    lowest = min(load(name) for name in usable)
    idle = [name for name in usable if load(name) == lowest]
    return idle[turn % len(idle)]
