"""Slots: the places of calls whose callers no longer wait, while a replica still works on them.

A Triton goes on with a call after its client has gone, so the call goes on counting: against the
limit of its model and as load of its replica. Otherwise clients that give up and come back would
fill the replica's queue without bound.
"""

import math
from typing import Protocol

from serve.core.replicas import Replica
from serve.proxy.admission import Admission
from serve.proxy.loads import Loads


class Places(Protocol):
    """The gateway, as a slot knows it."""

    loads: Loads
    admission: Admission
    kept: "set[Slot]"


class Slot:
    """One place. `free` gives it back, once; without a `model` only its replica counts it.

    The gateway frees it at `until`, by its clock, where nothing tells when the replica is done.
    """

    __slots__ = ("_model", "_places", "replica", "until")

    def __init__(
        self, places: Places, replica: Replica, model: str | None, until: float = math.inf
    ) -> None:
        self.replica = replica
        self.until = until
        self._places = places
        self._model = model
        places.kept.add(self)

    def __repr__(self) -> str:
        return f"<Slot {self._model} on {self.replica.name}>"

    def free(self) -> None:
        """The replica is done with the call, or is no longer called."""
        places = self._places
        if self not in places.kept:
            return
        places.kept.remove(self)
        places.loads.left(self.replica.name)
        if self._model is not None:
            places.admission.ended(self._model)
