"""A fleet to watch by script: a gateway that counts calls, and replicas that tell their numbers."""

import asyncio

from builders import Clock, replica, snapshot, target, view

from serve.control.fleet import Fleet
from serve.control.live.sources import Sources
from serve.core.errors import Unavailable
from serve.telemetry import Meters
from serve.triton.metrics import GpuReading, ModelReading, ReplicaScrape

OF_PROCESS = """\
servegate_calls_in_flight{{source="worker-0"}} 2
servegate_calls_in_flight{{source="worker-1"}} 3
servegate_replica_calls_in_flight{{replica="a",source="worker-0"}} 2
servegate_replica_usable{{replica="a",source="worker-0"}} 0
servegate_replica_usable{{replica="a",source="worker-1"}} 1
servegate_process_cpu_seconds_total{{source="worker-0"}} {cpu}
servegate_process_cpu_seconds_total{{source="supervisor"}} 1000
servegate_process_resident_bytes{{source="worker-0"}} 5e7
servegate_process_resident_bytes{{source="worker-1"}} 4e7
servegate_process_proportional_bytes{{source="worker-0"}} 3e7
"""


class Gateway:
    """Its meters are the real ones. `is_well` says whether it answers, `asked` how often."""

    def __init__(self) -> None:
        self.meters = Meters()
        self.cpu = 1.0
        self.others = ""  # further lines
        self.is_well = True
        self.asked = 0

    async def metrics(self) -> str:
        self.asked += 1
        if not self.is_well:
            raise Unavailable("it is being started")
        return self.text()

    def text(self) -> str:
        return self.meters.text().decode() + OF_PROCESS.format(cpu=self.cpu) + self.others


class Scene:
    """One gateway and two replicas, `a` up and `b` unseen, on one clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.wall = Clock(1_700_000_000.0)
        self.gateway = Gateway()
        self.fleet = Fleet((replica("a"), replica("b")), clock=self.clock)
        self.fleet.saw("a", {"m-fp16": (1,)})
        self.told = {"a": readings()}
        self.missing = {"a": 0}
        self.snapshot = snapshot(view(target(1, physical="m-fp16")))
        self.sources = Sources(
            self.gateway,
            self.fleet,
            self._readings,
            snapshot=lambda: self.snapshot,
            clock=self.clock,
            wall=self.wall,
            missing=lambda: self.missing,
        )

    def look(self, *, after=1.0):
        """The tree of a sample, some seconds later."""
        return asyncio.run(self.sample(after=after))

    async def sample(self, *, after=1.0):
        """The same within an event loop."""
        self.clock.now += after
        self.wall.now += after
        return (await self.sources.sample()).to_json()

    async def _readings(self, one):
        return self.told.get(one.name)


def readings(name="m-fp16", *, gpu=None, **counts):
    """What one replica tells of one version."""
    gpus = {"GPU-1": GpuReading(gpu, 1e9, 8e9, None)} if gpu is not None else {}
    return ReplicaScrape({(name, 1): reading(**counts)}, gpus, 0.25)


def reading(success=0, inferences=0, executions=0, queue=0.0, compute=0.0, pending=0):
    """What Triton has counted of one version."""
    return ModelReading(success, 0, inferences, executions, pending, queue, compute)
