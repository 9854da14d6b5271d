"""The parts of a control plane that watch how calls are batched, put together."""

import time
from dataclasses import dataclass

from serve.app.scrapes import scrape
from serve.control.batching.hints import BatchingHints
from serve.control.batching.latencies import Latencies
from serve.control.batching.observer import KEPT, BatchingObserver, Counted
from serve.control.batching.overview import Overviews
from serve.control.batching.rounds import Rounds
from serve.control.fleet import Fleet
from serve.control.gateway import GatewayClient
from serve.control.models import Models
from serve.control.scaling.arrivals import ModelArrivals
from serve.control.snapshots import Publisher
from serve.core.replicas import Replica
from serve.triton import config as triton_config
from serve.triton.config import Configuration
from serve.triton.control import TritonControl
from serve.triton.metrics import ReplicaScrape

_PATIENCE = 2.0  # seconds for one question


class TritonReader:
    """Asks replicas; one connection each, apart from those that load models."""

    def __init__(self) -> None:
        self._connections: dict[Replica, TritonControl] = {}

    def __repr__(self) -> str:
        return f"<TritonReader {len(self._connections)}>"

    async def counters(self, replica: Replica) -> Counted:
        """What a replica has counted; `Unavailable` or `TritonFailed` when it does not tell."""
        return await self._to(replica).statistics()

    async def readings(self, replica: Replica) -> ReplicaScrape | None:
        """What its own metrics say of queues and GPUs; None when it does not tell."""
        return await scrape(replica, only_queues=True)

    async def configuration(self, replica: Replica, name: str) -> Configuration:
        """What it has under a name, as it completed it; raises as `counters` does."""
        return triton_config.of_message(await self._to(replica).config(name))

    async def forget(self, replica: Replica) -> None:
        """It has left: close what leads there."""
        connection = self._connections.pop(replica, None)
        if connection is not None:
            await connection.close()

    def _to(self, replica: Replica) -> TritonControl:
        if replica not in self._connections:
            self._connections[replica] = TritonControl(replica, timeout=_PATIENCE)
        return self._connections[replica]


@dataclass(frozen=True, slots=True)
class BatchingWatch:
    """What is run, asked and counted."""

    rounds: Rounds
    overviews: Overviews
    hints: BatchingHints
    observer: BatchingObserver
    arrivals: ModelArrivals
    tritons: TritonReader

    async def run(self) -> None:
        """Read, and hold what calls do against what was tuned for, again and again."""
        await self.rounds.run(self.overviews.judge)


def observing_of(
    models: Models, fleet: Fleet, publisher: Publisher, gateway: GatewayClient
) -> BatchingWatch:
    """Watch the calls of every version on every replica."""
    tritons = TritonReader()
    observer = BatchingObserver(fleet, tritons, clock=time.monotonic)
    latencies = Latencies(KEPT)
    hints = BatchingHints(wall=time.time)
    arrivals = ModelArrivals()
    rounds = Rounds(observer, latencies, gateway, clock=time.monotonic, also=arrivals)
    overviews = Overviews(
        *(models, fleet, publisher, observer, latencies, hints),
        ask=tritons.configuration,
        refresh=rounds.refresh,
    )
    return BatchingWatch(rounds, overviews, hints, observer, arrivals, tritons)
