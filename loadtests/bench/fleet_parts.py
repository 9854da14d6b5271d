"""What grows with a fleet, part by part, in this process: CPU time, without networks and processes.

| part    | what is done                                                                         |
|---------|--------------------------------------------------------------------------------------|
| compile | one replica is lost or back; the snapshot is compiled anew (control plane)           |
| write   | the snapshot is written in the form in which it travels (control plane, for all)     |
| read    | it is read and checked; calls of this worker wait so long (data plane, each worker)  |
| call    | `Gateway.begin` and the end of the call (data plane)                                 |
| avoid   | the same while the worker avoids one replica that has failed                         |
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.registry import Loadable, Model
from serve.control.snapshots import compile_snapshot
from serve.core.calls import Call, Verb
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.proxy.admission import Admission
from serve.proxy.gateway import Gateway, LiveSnapshot
from serve.proxy.health import Health
from serve.proxy.loads import Loads
from serve.telemetry import Meters
from serve.triton import config as triton_config

_ROUNDS = 7
_CALLS = 2000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Medians for so many replicas, in seconds of CPU time; `bytes` are those of the snapshot."""

    replicas: int
    compile: float
    write: float
    read: float
    call: float
    avoid: float
    bytes: int


def measure(sizes: Sequence[int], models: int) -> tuple[Part, ...]:
    """All sizes, the smallest first."""
    return tuple(_part(replicas, models) for replicas in sorted(sizes))


def _part(replicas: int, models: int) -> Part:
    fleet, known = fleet_of(replicas, models)
    decisions, lost = Decisions(), "replica-00000"

    def compiled() -> Snapshot:
        if not fleet.lost(lost, "refused"):
            fleet.saw(lost, fleet.observations[lost].held)
        return compile_snapshot(known, decisions, fleet)

    taken = [_timed(compiled)[0] for _ in range(_ROUNDS)]
    snapshot = compiled()
    write, data = _median(lambda: json.dumps(snapshot.to_json(), separators=(",", ":")))
    read, _ = _median(lambda: Snapshot.from_json(json.loads(data)))
    gateway = _gateway(Snapshot.from_json(json.loads(data) | {"generation": 1}))
    call = _median(lambda: _call(gateway))[0] / _CALLS
    gateway.health.failed("replica-00001")
    avoid = _median(lambda: _call(gateway))[0] / _CALLS
    return Part(replicas, statistics.median(taken), write, read, call, avoid, len(data))


def fleet_of(replicas: int, models: int) -> tuple[Fleet, dict[str, Model]]:
    """A fleet that holds all of these models."""
    configuration = triton_config.parse('backend: "fake"\nversion_policy { all { } }\n')
    names = [f"model-{number:03}" for number in range(models)]
    known = {name: Model(name, (Loadable(name, (1,), (1,), configuration, ""),)) for name in names}
    members = tuple(
        Replica(f"replica-{number:05}", "10.0.0.1", 8000, 8001, 8002) for number in range(replicas)
    )
    fleet = Fleet(members, clock=time.monotonic)
    held = MappingProxyType(dict.fromkeys(names, (1,)))
    for one in members:
        fleet.saw(one.name, held)
    return fleet, known


def _timed(do: Callable[[], T]) -> tuple[float, T]:
    began = time.thread_time()
    found = do()
    return time.thread_time() - began, found


def _median(do: Callable[[], T]) -> tuple[float, T]:
    """Of some rounds; and what the last gave."""
    found = [_timed(do) for _ in range(_ROUNDS)]
    return statistics.median(seconds for seconds, _ in found), found[-1][1]


def _gateway(snapshot: Snapshot) -> Gateway:
    live, loads = LiveSnapshot(), Loads()
    live.swap(snapshot)
    return Gateway(
        live,
        loads=loads,
        admission=Admission(loads, limit=1000),
        health=Health(lambda: 0.0),
        meters=Meters(),
        draw=lambda: 0.5,
        clock=time.monotonic,
    )


def _call(gateway: Gateway) -> None:
    asked = Call("http", Verb.INFER, "model-000", "", math.inf, "", "")
    for _ in range(_CALLS):
        gateway.begin(asked).answered(200, good=True)
