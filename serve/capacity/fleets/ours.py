"""This project's policy in a fleet: what the control plane would see, every five seconds."""

from collections import Counter, defaultdict

from serve.capacity.fleets.seen import SeenTick, SimulatedServer
from serve.capacity.fleets.windows import TickWindow
from serve.capacity.scaling import policy
from serve.capacity.scaling.replica_capacity import Learned
from serve.capacity.scaling.signals import Bounds, ModelSignal, PoolSignal


class Ours:
    """`capacity/scaling/policy.py`, with a capacity that is learned from executions.

    `bounds` are what people allow. `began`: when the control plane started, in seconds.
    """

    def __init__(
        self, server: SimulatedServer, bounds: Bounds, *, began: float = -policy.RESTARTED
    ) -> None:
        self._server = server
        self._bounds = bounds
        self._state = policy.begin(began)
        self._learned = Learned(server.limit, instances=1, largest=server.largest)
        self._recent, self._lately = TickWindow(5.0), TickWindow(15.0)
        self._calls, self._late = TickWindow(60.0), TickWindow(60.0)
        self._queued, self._computed = TickWindow(60.0), TickWindow(60.0)
        self._executions: Counter[int] = Counter()
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._answered = 0
        self._wish: int | None = None
        self._decided = 0.0
        self._called = 0.0  # when the last call came

    def __repr__(self) -> str:
        return f"<Ours wish={self._wish} {self._learned!r}>"

    def decide(self, seen: SeenTick) -> int:
        """Every five seconds; what was wished before meanwhile."""
        self._look(seen)
        if self._wish is not None and seen.at - self._decided < policy.TICK:
            return self._wish
        self._learn(seen)
        self._decided = seen.at
        self._state, hint = policy.decide(self._state, self._signal(seen), self._bounds)
        self._wish = hint.desired
        return hint.desired

    def _look(self, seen: SeenTick) -> None:
        at = seen.at
        self._recent.add(at, seen.calls)
        self._lately.add(at, seen.calls)
        self._calls.add(at, seen.calls)
        self._late.add(at, seen.late)
        self._queued.add(at, seen.queued)
        self._computed.add(at, seen.computed)
        for rows, (count, seconds) in seen.executions.items():
            self._executions[rows] += count
            self._seconds[rows] += seconds
        self._answered += seen.answered
        if seen.calls:
            self._called = at

    def _learn(self, seen: SeenTick) -> None:
        """As the control plane reads Triton's counts: once a round."""
        risen = {rows: (count, self._seconds[rows]) for rows, count in self._executions.items()}
        self._learned.add(risen, seen.at)
        passed = seen.at - self._decided
        if seen.ready and passed:
            rate = self._answered / passed / seen.ready
            self._learned.saturated(rate, seen.waiting / seen.ready, seen.at)
        self._executions.clear()
        self._seconds.clear()
        self._answered = 0

    def _signal(self, seen: SeenTick) -> PoolSignal:
        came, computed = self._calls.total, self._computed.total
        model = ModelSignal(
            "m",
            recent=self._recent.mean,
            lately=self._lately.mean,
            waiting=float(seen.waiting),
            capacity=self._learned.capacity(seen.at),
            holding=seen.ready,
            limit=self._server.limit,
            missed=min(1.0, self._late.total / came) if came else None,
            pressure=self._queued.total / computed if computed else None,
        )
        return PoolSignal(
            "p",
            seen.at,
            seen.ready,
            seen.starting,
            (model,),
            cold_start=self._server.cold_start,
            idle=seen.at - self._called,
        )
