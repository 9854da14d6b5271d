"""The parts of a control plane that say how many replicas there should be, put together.

The GPU readings of a replica come from these sources:

1. Triton's metrics, which are scraped anyway: they list the GPUs of this Triton.
2. The dcgm-exporter on the same node, if `gpu_metrics` names one: only it knows the real load.
3. NVML, for a Triton on this machine whose GPU utilisation is not known from 1 or 2.
"""

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from serve.app.batch_observation import BatchingWatch
from serve.app.paths import HINTS_FILE
from serve.app.scrapes import scrape_gpus
from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.scaling.board import HintBoard
from serve.control.scaling.held_hints import Lasting
from serve.control.scaling.meters import HintMeters
from serve.control.scaling.pools import Usual, known_pools, settings_of
from serve.control.scaling.scaler import Scaler
from serve.control.scaling.setups import Setups
from serve.control.scaling.signals import Allowed, Signals
from serve.control.scaling.signals import Gpus as Known
from serve.control.snapshots import Publisher
from serve.core.replicas import Replica
from serve.settings import Settings, is_loopback
from serve.triton.gpus.nvml import Nvml
from serve.triton.gpus.readings import Gpu, among, merged, of_triton
from serve.triton.metrics import ReplicaScrape

# --- who is asked for the GPUs of which replica ---------------------------------------------------


_PATIENCE = 1.0  # seconds


class Gpus:
    """Asks. `exporter` gives the URL of a replica's dcgm-exporter, or an empty text.

    `patience`: seconds for NVML, which may have to wake an idle GPU.
    """

    def __init__(
        self,
        exporter: Callable[[Replica], str],
        *,
        nvml: Callable[[], Mapping[str, Gpu]] | None = None,
        patience: float = _PATIENCE,
    ) -> None:
        self._exporter = exporter
        self._nvml = nvml or Nvml().read
        self._patience = patience
        self._asked: asyncio.Future[Mapping[str, Gpu]] | None = None
        self._proven: dict[str, set[str]] = {}  # GPUs by replica that Triton reported as busy

    def __repr__(self) -> str:
        return f"<Gpus proven={sum(len(one) for one in self._proven.values())}>"

    async def gpus_of(
        self, replica: Replica, readings: ReplicaScrape | None
    ) -> Mapping[str, Mapping[str, Any]]:
        """The readings by UUID; empty if no source has any."""
        told = self._as_triton_tells(replica, readings)
        sources, url = [told], self._exporter(replica)
        if url:
            sources.append(await scrape_gpus(url, pod=_pod_of(replica)))
        if is_loopback(replica.host) and not _is_enough(merged(sources)):
            sources.append(await self._of_this_machine())
        return {uuid: gpu.to_json() for uuid, gpu in among(merged(sources), set(told)).items()}

    def _as_triton_tells(
        self, replica: Replica, readings: ReplicaScrape | None
    ) -> Mapping[str, Gpu]:
        if readings is None:
            self._proven.pop(replica.name, None)  # it may come back on another GPU
            return {}
        busy = {uuid for uuid, one in readings.gpus.items() if (one.utilization or 0) > 0}
        proven = self._proven.setdefault(replica.name, set())
        proven |= busy
        return of_triton(readings.gpus, proven)

    async def _of_this_machine(self) -> Mapping[str, Gpu]:
        """One question at a time, for all who ask meanwhile: a sick GPU may never answer."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.ensure_future(asyncio.to_thread(self._nvml))
        done, _ = await asyncio.wait({self._asked}, timeout=self._patience)
        return self._asked.result() if done else {}


def _pod_of(replica: Replica) -> str:
    """Its pod, if it is one: whose name discovery takes, or a StatefulSet's in its host name."""
    try:
        ipaddress.ip_address(replica.host)
    except ValueError:
        return replica.host.partition(".")[0]
    return replica.name


def _is_enough(gpus: Mapping[str, Gpu]) -> bool:
    """Whether it is known of each how busy it is, or that this cannot be known."""
    return bool(gpus) and all(one.utilization is not None or one.mig for one in gpus.values())


# --- autoscaler -----------------------------------------------------------------------------------


OfReplica = Mapping[str, Mapping[str, Any]]  # by UUID
_log = logging.getLogger("servegate.scaling")


@dataclass(frozen=True, slots=True)
class Scaling:
    """What is run, asked and counted."""

    board: HintBoard
    scaler: Scaler
    meters: HintMeters


def scaling_of(
    settings: Settings,
    watching: BatchingWatch,
    usual: Usual,
    *,
    fleet: Fleet,
    inventory: Inventory,
    publisher: Publisher,
    decisions: Callable[[], Decisions],
    starting: Callable[[], Mapping[str, int]] = dict,
) -> Scaling:
    """Hints for every pool. `usual` is what is allowed of pools of which nobody has set anything.

    `starting` gives the replicas by pool that somebody starts, and that have not joined yet.
    """
    clock, board = time.monotonic, HintBoard()
    setups = Setups(
        watching.tritons.configuration, decided=lambda: inventory.configurations, clock=clock
    )
    signals = Signals(
        *(fleet, watching.observer, watching.arrivals, setups),
        decisions=decisions,
        snapshot=lambda: publisher.snapshot,
        starting=starting,
        clock=clock,
    )
    scaler = Scaler(
        *(watching.rounds, setups, signals, board),
        lasting=Lasting(settings.state_path / HINTS_FILE, wall=time.time),
        allowed=lambda: _allowed(decisions(), fleet, publisher, usual),
        gpus=partial(_gpus, Gpus(settings.dcgm_url), fleet, watching),
        clock=clock,
        wall=time.time,
    )
    return Scaling(board, scaler, HintMeters(board, wall=time.time))


def _allowed(
    decisions: Decisions, fleet: Fleet, publisher: Publisher, usual: Usual
) -> dict[str, Allowed]:
    """Every pool, by what was set for it; none before it is known which replicas there are."""
    if not fleet.is_complete:
        return {}
    now, found = time.time(), {}
    for pool in known_pools(decisions, fleet.pools, publisher.snapshot.models, usual):
        settings = settings_of(decisions, pool, usual)
        bounds, schedule = settings.bounds(now)
        found[pool] = Allowed(bounds, schedule, settings.cost, settings.group)
    return found


async def _gpus(gpus: Gpus, fleet: Fleet, watching: BatchingWatch) -> Known:
    """All replicas that answer are asked at once."""
    up = [one.replica for one in fleet.observations.values() if one.is_up]
    found = await asyncio.gather(*(_gpus_of(gpus, one, watching) for one in up))
    return {replica.name: one for replica, one in zip(up, found, strict=True)}


async def _gpus_of(gpus: Gpus, replica: Replica, watching: BatchingWatch) -> OfReplica:
    newest = watching.observer.newest(replica.name)
    try:
        return await gpus.gpus_of(replica, newest.readings if newest else None)
    except Exception:  # whatever is wrong with a GPU, there are hints without it
        _log.exception("cannot read the GPU metrics of %s", replica.name)
        return {}
