"""How long a database may take before it counts as gone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreTimeouts:
    """Seconds after which a PostgreSQL that does not answer counts as gone.

    `connect` for a host (libpq takes whole ones, from 2), `statement` for the server and `answer`
    for the client, which waits longer.
    """

    connect: int = 3
    statement: float = 3.0
    answer: float = 4.0


LIMITS = StoreTimeouts()
