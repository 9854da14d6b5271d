"""Setups: how the replicas of a pool run what is under a name in Triton, as far as capacity depends
on it.

How many instances there are only a Triton knows that has completed the configuration, so one of
each pool is asked, and again after a while. Where it does not tell, what was decided holds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from serve.control.batching.situation import batched_of
from serve.control.batching.steps import NEWEST
from serve.core.errors import TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.triton.config import Configuration

Where = tuple[str, str]  # a pool, a name in Triton
Ask = Callable[[Replica, str], Awaitable[Configuration]]
_LASTS = 60.0  # seconds until it is asked again
_REMEMBERED = 7200.0  # seconds for which it holds when there is nobody who could be asked
_MOST = 50  # questions of one round
_log = logging.getLogger("servegate.scaling")


@dataclass(frozen=True, slots=True)
class SetUp:
    """On one replica. `largest`: rows of an execution; 0 where the model takes no batches.

    `batches` says whether calls are put together. `parts` are what an ensemble is made of: names in
    Triton, and versions, of which -1 is the newest.
    """

    instances: int = 1
    largest: int = 0
    batches: bool = False
    parts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, configuration: Configuration) -> "SetUp":
        """As a configuration says."""
        setup = batched_of(configuration).setup
        steps = configuration.message.ensemble_scheduling.step
        return cls(
            setup.instances,
            setup.max_batch_size,
            setup.batches or configuration.batches_sequences,
            tuple((step.model_name, int(step.model_version) or NEWEST) for step in steps),
        )


class Setups:
    """By pool and name in Triton. `decided` gives the configurations in force by that name."""

    def __init__(
        self,
        ask: Ask,
        *,
        decided: Callable[[], Mapping[str, Configuration]],
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._decided = decided
        self._clock = clock
        self._known: dict[Where, SetUp] = {}
        self._asked: dict[Where, float] = {}

    def __repr__(self) -> str:
        return f"<Setups {len(self._known)}>"

    def of(self, pool: str, name: str) -> SetUp | None:
        """What is known; None before anybody was asked."""
        return self._known.get((pool, name))

    async def learn(self, holders: Mapping[Where, Replica]) -> None:
        """Ask for what is not known, or was asked for long ago; who is there is asked."""
        now = self._clock()
        for where in [one for one, at in self._asked.items() if now - at > _REMEMBERED]:
            del self._asked[where]
            self._known.pop(where, None)
        due = [one for one in holders if now - self._asked.get(one, -_LASTS) >= _LASTS][:_MOST]
        if not due:
            return
        decided = self._decided()
        told = await asyncio.gather(*(self._told(holders[one], one[1]) for one in due))
        for where, configuration in zip(due, told, strict=True):
            self._asked[where] = now
            if (known := configuration or decided.get(where[1])) is not None:
                self._known[where] = SetUp.of(known)

    async def _told(self, replica: Replica, name: str) -> Configuration | None:
        try:
            return await self._ask(replica, name)
        except (Unavailable, TritonFailed) as error:
            _log.debug("%s does not return the configuration of %s: %s", replica.name, name, error)
            return None
