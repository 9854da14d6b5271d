"""The scaler: every five seconds it reads, decides for every pool, and puts the hints on the board.

    read ──▶ learn ──▶ look ──▶ decide, pool by pool ──▶ board
                         ▲
    somebody waits for a model without a replica: `wake`, at once and with what was read last

It only advises. What is remembered of a pool lives as long as the process; a new one holds for a
minute what there is (`capacity/scaling/policy.py`), or was asked for last (`held_hints.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from serve.capacity.scaling.policy import TICK, PolicyState, begin, decide
from serve.capacity.scaling.signals import PoolSignal
from serve.control.batching.rounds import PAUSE, Rounds
from serve.control.scaling.board import HintBoard
from serve.control.scaling.held_hints import Lasting
from serve.control.scaling.setups import Setups
from serve.control.scaling.signals import Allowed, Gpus, Signals
from serve.control.scaling.told import PoolNumbers

_AWAKE = 15.0  # seconds for which somebody who waits is remembered; workers say it every five
_log = logging.getLogger("servegate.scaling")


class Scaler:
    """Runs as long as this process leads. `clock`: monotonic seconds; `wall`: of the epoch.

    `allowed` gives what people allow of every pool there is, `gpus` what is known of all GPUs.
    """

    def __init__(
        self,
        rounds: Rounds,
        setups: Setups,
        signals: Signals,
        board: HintBoard,
        *,
        lasting: Lasting,
        allowed: Callable[[], Mapping[str, Allowed]],
        gpus: Callable[[], Awaitable[Gpus]],
        clock: Callable[[], float],
        wall: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rounds = rounds
        self._setups = setups
        self._signals = signals
        self._board = board
        self._lasting = lasting
        self._allowed = allowed
        self._ask_gpus = gpus
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._gpus: Gpus = {}
        self._states: dict[str, PolicyState] = {}
        self._woken: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Scaler pools={len(self._states)} woken={sorted(self._woken)} {self._board}>"

    async def run(self) -> None:
        """Go on and on; whatever goes wrong in a round, the next one comes."""
        await asyncio.to_thread(self._lasting.read)
        while True:
            begun = self._clock()
            try:
                await self.round()
            except Exception:
                _log.exception("hints could not be calculated in this round")
            await self._sleep(max(PAUSE, begun + TICK - self._clock()))

    async def round(self) -> None:
        """Read everybody, and decide."""
        await self._rounds.refresh(PAUSE)
        await self._setups.learn(self._signals.holders())
        self._gpus = await self._ask_gpus()
        self._decide()
        await asyncio.to_thread(self._lasting.write)

    def wake(self, models: Iterable[str]) -> None:
        """Somebody waits for these, which no replica holds: decide at once, when that is news."""
        now, known = self._clock(), frozenset(self._woken)
        self._woken.update(dict.fromkeys(models, now))
        if self._woken.keys() - known:
            self._decide()

    def _decide(self) -> None:
        now = self._clock()
        self._woken = {name: at for name, at in self._woken.items() if now - at < _AWAKE}
        allowed = self._allowed()
        seen = self._signals.look(allowed, self._gpus, self._woken)
        self._states = {pool: self._states.get(pool) or begin(now) for pool in seen}
        self._board.put([self._told(signal, allowed[pool]) for pool, signal in seen.items()])

    def _told(self, signal: PoolSignal, allowed: Allowed) -> PoolNumbers:
        pool = signal.name
        self._states[pool], hint = decide(self._states[pool], signal, allowed.bounds)
        hint, gpus = self._lasting.hold(hint, allowed.bounds), self._of_pool(pool)
        return PoolNumbers(hint, signal, allowed.bounds, self._wall(), allowed.schedule, gpus)

    def _of_pool(self, pool: str) -> dict[str, Mapping[str, Any]]:
        """What is known of its GPUs, by `replica/uuid`."""
        return {
            f"{name}/{uuid}": one
            for name in self._signals.ready(pool)
            for uuid, one in self._gpus.get(name, {}).items()
        }
