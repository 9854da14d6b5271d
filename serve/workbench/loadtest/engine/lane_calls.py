"""The calls of one lane: bodies in turn, sequences, and those that wait for a connection.

    make ──▶ sender takes it ──▶ in flight ──▶ ended ──▶ recorder, then whoever goes on after it
      └────▶ sender is full ───▶ waiting ──────▲ when a call of the lane ends, in order

Both loops make their calls here. They differ in what a latency is from: the intended start in the
open loop, the real one in the closed loop.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from serve.workbench.loadtest.engine.recorder import WindowRecorder
from serve.workbench.loadtest.engine.senders import Sender
from serve.workbench.loadtest.plan import Lane, Payload
from serve.workbench.loadtest.record import NEVER_STARTED
from serve.workbench.loadtest.sequences import sequence_body

After = Callable[[float, float], None]
"""What is done when a call has ended: with its real start and its end."""

Body = tuple[Payload, bytes]


class LaneCalls:
    """Makes calls. `identities`: numbers for sequences, which no other worker has.

    `from_start`: whether latencies are from the real start, and calls that never start are none.
    """

    def __init__(
        self,
        number: int,
        lane: Lane,
        *,
        sender: Sender,
        recorder: WindowRecorder,
        identities: Iterator[int],
        from_start: bool,
        clock: Callable[[], float],
    ) -> None:
        self.has_sequences = lane.sequences is not None
        self._lane = lane
        self._number = number
        self._send = sender.send
        self._recorder = recorder
        self._identities = identities
        self._from_start = from_start
        self._clock = clock
        self._payloads = itertools.cycle(lane.payloads)
        self._waiting: deque[tuple[float, Payload, bytes, After | None]] = deque()
        self._is_over = False
        self.in_flight = 0

    def __repr__(self) -> str:
        return f"<LaneCalls {self._lane.name}: {self.in_flight} in flight, {self.waiting} waiting>"

    @property
    def weight(self) -> float:
        """Of so many calls, in proportion, this lane makes so many."""
        return self._lane.weight

    @property
    def waiting(self) -> int:
        """How many calls wait for a connection."""
        return len(self._waiting)

    def bodies(self) -> Iterator[Body]:
        """What belongs together: the bodies of a new sequence, or one where there are none."""
        sequences = self._lane.sequences
        if sequences is None:
            payload = next(self._payloads)
            yield payload, payload.body
            return
        identity = next(self._identities)
        for place in range(sequences.length):
            payload = next(self._payloads)
            body = payload.body
            if sequences.length == 1:
                body = payload.only
            elif place == 0:
                body = payload.first
            elif place == sequences.length - 1:
                body = payload.last
            yield (
                payload,
                sequence_body(body, sequences.marker, self._lane.protocol, identity),
            )

    def make_next(self, intended: float) -> None:
        """One call with the next body, in a lane without sequences."""
        payload = next(self._payloads)
        self.make(intended, payload, payload.body, None)

    def make(self, intended: float, payload: Payload, body: bytes, after: After | None) -> None:
        """Start a call, or let it wait behind those that wait already."""
        if self._is_over:
            return
        if self._waiting or not self._start(intended, payload, body, after):
            self._waiting.append((intended, payload, body, after))

    def start_waiting(self) -> None:
        """Start as many of those that wait as there is room for."""
        waiting = self._waiting
        while waiting:
            call = waiting.popleft()
            if not self._start(*call):
                waiting.appendleft(call)
                return

    def forget_before(self, begins: float) -> None:
        """Let go what waits from the warm-up; users of a closed loop stay."""
        if not self._from_start:
            self._waiting = deque(call for call in self._waiting if call[0] >= begins)

    def stop(self, now: float) -> None:
        """Start nothing more, and record what has waited in vain."""
        self._is_over = True
        if not self._from_start:
            for intended, payload, _, _ in self._waiting:
                self._recorder.ended(
                    self._number, intended, now, now, NEVER_STARTED, "", payload.rows
                )
        self._waiting.clear()

    def _start(self, intended: float, payload: Payload, body: bytes, after: After | None) -> bool:
        started = self._clock()
        if self._from_start:
            intended = started
        done = partial(self._ended, intended, started, payload.rows, after)
        if not self._send(payload, body, done):
            return False
        self.in_flight += 1
        if not self._from_start:
            self._recorder.lagged(intended, started)
        return True

    def _ended(
        self,
        intended: float,
        started: float,
        rows: int,
        after: After | None,
        outcome: str,
        decision: str,
        ended: float,
    ) -> None:
        self.in_flight -= 1
        self._recorder.ended(self._number, intended, started, ended, outcome, decision, rows)
        if self._waiting:
            self.start_waiting()
        if after is not None:
            after(started, ended)


def choices(lanes: Sequence[LaneCalls], *, seed: str) -> Iterator[LaneCalls]:
    """Lanes without end, each as often as its weight says; the same for the same seed."""
    if len(lanes) == 1:
        yield from itertools.repeat(lanes[0])
    draw = random.Random(seed)
    weights = tuple(itertools.accumulate(each.weight for each in lanes))
    while True:
        yield from draw.choices(lanes, cum_weights=weights, k=1000)
