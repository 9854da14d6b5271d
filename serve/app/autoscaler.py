"""The parts of a control plane that say how many replicas there should be, put together."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from serve.app.batch_observation import BatchingWatch
from serve.app.gpus import Gpus
from serve.app.paths import HINTS_FILE
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
from serve.settings import Settings

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
