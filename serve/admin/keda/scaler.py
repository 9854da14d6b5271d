"""What KEDA is told of a pool, and when: its questions, answered from the newest hints.

| what is known of the pool              | IsActive    | GetMetrics  | StreamIsActive        |
|----------------------------------------|-------------|-------------|-----------------------|
| a hint that may be followed            | above 0?    | its number  | true once it is not 0 |
| a hold: inputs are old, wrong, or new  | UNAVAILABLE | UNAVAILABLE | nothing               |
| no hint yet, or one that is too old    | UNAVAILABLE | UNAVAILABLE | nothing               |
| there is no such pool                  | NOT_FOUND   | NOT_FOUND   | NOT_FOUND             |

After an error KEDA, and the HPA behind it, leave everything as it is: that is what a hold means.

`GetMetricSpec` depends on nothing: KEDA that once cannot hear it may ignore from then on what is
pushed (kedacore/keda issue 8168). A stream only ever says true. KEDA before 2.18 takes a false for
a reason to remove the last replica whatever other triggers say (issue 6986), later ones ignore it,
and all ask `IsActive` again and again. It is said anew in each round in which a pool is to have
replicas and has none, since KEDA forgets what it could not act upon.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from serve.control.scaling.board import HintBoard
from serve.core.errors import Unavailable

METRIC = "servegate-desired-replicas"
TARGET = 1  # of the metric, per replica: so the HPA wants as many replicas as the metric says


class ExternalScaler:
    """The answers over one board. `wall` is in seconds of the epoch."""

    def __init__(self, board: HintBoard, *, wall: Callable[[], float]) -> None:
        self._board = board
        self._wall = wall
        self._closing = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ExternalScaler {self._board!r}>"

    def desired(self, pool: str) -> int:
        """The number of replicas to have; `NotFound`, or `Unavailable` where none can be told."""
        return self._board.followed(pool, self._wall()).hint.desired

    async def wakes(self, pool: str) -> AsyncGenerator[None, None]:
        """Each moment to tell that the pool is to have replicas; ends with `close`; `NotFound`."""
        number, was_active = -1, False
        while (newer := await self._after(number)) is not None:
            number = newer
            with contextlib.suppress(Unavailable):
                hint = self._board.followed(pool, self._wall()).hint
                if hint.desired and not (was_active and hint.ready + hint.starting):
                    yield
                was_active = hint.desired > 0

    async def closed(self) -> None:
        """Wait for `close`."""
        await self._closing.wait()

    def close(self) -> None:
        """End the streams as if all had been said: KEDA comes back after 2 s.

        From one that breaks it stays away for longer each time, up to a minute.
        """
        self._closing.set()

    async def _after(self, number: int) -> int | None:
        """The newest number of the board, once it is higher than this one; None when it closes."""
        newer = asyncio.ensure_future(self._board.after(number))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((newer, closing), return_when=asyncio.FIRST_COMPLETED)
            return None if closing.done() else newer.result()
        finally:
            newer.cancel()
            closing.cancel()
