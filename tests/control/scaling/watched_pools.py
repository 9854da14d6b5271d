"""Pools to watch by script: a gateway that counts calls, and replicas that count executions.

Every model has one version, whose name in Triton is its own.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders import Clock, replica, snapshot, target, view
from control.batching import situations

from serve.capacity.scaling.policy import RESTARTED, TICK
from serve.capacity.scaling.signals import Bounds, ModelSignal
from serve.control.batching.latencies import Latencies
from serve.control.batching.observer import BatchingObserver, Counted, Slot
from serve.control.batching.rounds import Rounds
from serve.control.decisions import MODEL, POOL, Decisions
from serve.control.fleet import Fleet
from serve.control.scaling.arrivals import ModelArrivals
from serve.control.scaling.board import HintBoard
from serve.control.scaling.held_hints import Lasting
from serve.control.scaling.scaler import Scaler
from serve.control.scaling.setups import Setups
from serve.control.scaling.signals import Allowed, Signals
from serve.control.scaling.told import PoolNumbers
from serve.control.storage.store import StoredEntry
from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.triton.config import Configuration, parse
from serve.triton.metrics import ModelReading, ReplicaScrape
from serve.triton.model_counters import Counters, total

BOUNDS = (0.001, 0.01, 0.1, 1.0)
BATCHES = "max_batch_size: 8\ndynamic_batching { }\ninstance_group [{ kind: KIND_CPU count: 1 }]\n"


@dataclass
class Calls:
    """What the gateway has counted of a model: `answered` by seconds, `overloaded`, in flight."""

    answered: dict[float, float] = field(default_factory=dict)
    overloaded: float = 0.0
    in_flight: float = 0.0


def text(models: Mapping[str, Calls]) -> str:
    """As the gateway's metrics port tells it."""
    lines = ["# HELP some text"]
    for model, calls in models.items():
        what = f'model="{model}",version="1",route="latest",protocol="http"'
        count = sum(calls.answered.values())
        seconds = sum(each * many for each, many in calls.answered.items())
        lines += [
            f'servegate_calls_total{{{what},verb="infer",code="200"}} {count}',
            f'servegate_errors_total{{{what},error="overloaded"}} {calls.overloaded}',
            f"servegate_call_seconds_sum{{{what}}} {seconds}",
            f'servegate_call_seconds_bucket{{{what},le="+Inf"}} {count + calls.overloaded}',
            f'servegate_model_calls_in_flight{{source="w",model="{model}"}} {calls.in_flight}',
        ]
        for bound in BOUNDS:
            within = sum(many for each, many in calls.answered.items() if each <= bound)
            lines.append(
                f'servegate_call_seconds_bucket{{{what},le="{bound}"}} {within + calls.overloaded}'
            )
    return "\n".join([*lines, ""])


def counted(
    executions: Mapping[int, tuple[int, float]], queue: float = 0.0, brings: int = 1
) -> Counters:
    """Executions by rows: how many, and seconds of one.

    `queue`: seconds that each call waited; `brings`: rows of a call.
    """
    rows = sum(size * count for size, (count, _) in executions.items())
    in_ms = {size: (count, each * 1e3) for size, (count, each) in executions.items()}
    return situations.counted(in_ms, calls=rows // brings, queue=queue * 1e3)


class Scene:
    """A control plane's scaler over replicas `a` and `b`, which hold the models named.

    What lasts is kept in `folder`, if there is one.
    """

    def __init__(
        self,
        *models: str,
        replicas: tuple[Replica, ...] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.clock, self.wall = Clock(), Clock(1_700_000_000.0)
        self.fleet = Fleet(replicas or (replica("a"), replica("b")), clock=self.clock)
        self.models = models or ("m",)
        self.gateway: dict[str, Calls] | None = {name: Calls() for name in self.models}
        self.raw: str | None = None  # instead of the gateway's own text
        self.told: dict[str, Counted | None] = {}
        self.pending: dict[Slot, int] = {}
        self.tells_metrics = True
        self.configurations = dict.fromkeys(self.models, BATCHES)
        self.decided: dict[tuple[str, str], Any] = {}
        self.allowed = {pool: Allowed(Bounds(1, 100)) for pool in self.fleet.pools or {"default"}}
        self.gpus: dict[str, dict[str, dict[str, Any]]] = {}
        self.starting: dict[str, int] = {}
        self.folder = folder or Path("/nowhere")
        for name in self.fleet.observations:
            self.fleet.saw(name, dict.fromkeys(self.models, (1,)))
        self.begin()

    def begin(self) -> None:
        """The control plane starts, or starts anew: what it remembers is gone."""
        self.arrivals = ModelArrivals()
        self.observer = BatchingObserver(self.fleet, self, clock=self.clock)
        latencies = Latencies(300.0)
        rounds = Rounds(self.observer, latencies, self, clock=self.clock, also=self.arrivals)
        setups = Setups(self._ask, decided=dict, clock=self.clock)
        self.board = HintBoard()
        self.signals = Signals(
            *(self.fleet, self.observer, self.arrivals, setups),
            decisions=self.decisions,
            snapshot=self.snapshot,
            starting=lambda: self.starting,
            clock=self.clock,
        )
        self.lasting = Lasting(self.folder / "hints.json", wall=self.wall)
        self.lasting.read()
        self.scaler = Scaler(
            *(rounds, setups, self.signals, self.board),
            lasting=self.lasting,
            allowed=lambda: self.allowed,
            gpus=self._gpus,
            clock=self.clock,
            wall=self.wall,
        )

    # --- what is asked ----------------------------------------------------------------------------

    async def metrics(self) -> str:
        if self.gateway is None:
            raise Unavailable("no gateway")
        return text(self.gateway) if self.raw is None else self.raw

    async def counters(self, one: Replica) -> Counted:
        found = self.told.get(one.name, {})
        if found is None:
            raise Unavailable("it does not answer")
        return found

    async def readings(self, one: Replica) -> ReplicaScrape | None:
        if not self.tells_metrics:
            return None
        models = {
            slot: ModelReading(0, 0, 0, 0, pending, 0.0, 0.0)
            for slot, pending in self.pending.items()
        }
        return ReplicaScrape(models, {}, None)

    async def _ask(self, one: Replica, name: str) -> Configuration:
        return parse(self.configurations[name])

    async def _gpus(self) -> dict[str, dict[str, dict[str, Any]]]:
        return self.gpus

    def decisions(self) -> Decisions:
        return Decisions({key: StoredEntry(body, 1) for key, body in self.decided.items()})

    def snapshot(self) -> Snapshot:
        views = []
        for name in self.models:
            holders = [
                one for one in self.fleet.observations if self.fleet.can_be_called(one, name, 1)
            ]
            views.append(view(*([target(1, *holders, model=name)] if holders else []), name=name))
        return snapshot(*views)

    # --- what a test says -------------------------------------------------------------------------

    def promise(self, model: str, objective: str) -> None:
        self.decided[MODEL, model] = {"objective": objective}

    def place(self, model: str, pool: str) -> None:
        self.decided[MODEL, model] = {"pool": pool}

    def group(self, name: str, *pools: str) -> None:
        for pool in pools:
            self.decided[POOL, pool] = {"group": name}

    @property
    def calls(self) -> Calls:
        """What the gateway has counted of `m`."""
        assert self.gateway is not None
        return self.gateway["m"]

    def count(self, **calls: Any) -> None:
        """The gateway has counted this of `m`, as `Calls` has it."""
        assert self.gateway is not None
        self.gateway["m"] = Calls(**calls)

    def look(self, after: float = TICK) -> None:
        """One round, so many seconds after the one before."""
        self.clock.now += after
        self.wall.now += after
        asyncio.run(self.scaler.round())

    def call(self, model: str = "m", *, rate: float, took: float = 0.01) -> None:
        """So many calls per second for one period, answered as they come."""
        assert self.gateway is not None
        answered = self.gateway[model].answered
        answered[took] = answered.get(took, 0.0) + rate * TICK

    def execute(
        self,
        on: str,
        model: str = "m",
        *,
        queue: float = 0.0,
        brings: int = 1,
        **sizes: tuple[int, float],
    ) -> None:
        """A replica executes: `b2=(30, 0.02)` is 30 executions of 2 rows, 20 ms each."""
        known = dict(self.told.get(on) or {})
        more = counted({int(name[1:]): one for name, one in sizes.items()}, queue, brings)
        known[model, 1] = total([known.get((model, 1), Counters()), more])
        self.told[on] = known

    def work(
        self, *, rate: float, on: str = "ab", model: str = "m", rounds: int = 1, **executed: Any
    ) -> None:
        """Rounds in which so many calls come, and each of these replicas executes the same."""
        for _ in range(rounds):
            self.call(model, rate=rate)
            for name in on:
                self.execute(name, model, **executed)
            self.look()

    def settle(self) -> None:
        """Until the minute after a start is over."""
        for _ in range(int(RESTARTED / TICK) + 2):
            self.look()

    def hint(self, pool: str = "default") -> PoolNumbers:
        return self.board.of(pool)

    def model(self, name: str = "m", pool: str = "default") -> ModelSignal:
        return next(one for one in self.hint(pool).signal.models if one.name == name)
