"""How a control plane grows with its fleet: 50 to 5,000 fake replicas, 50 models, 10 data planes.

For each size a control plane starts anew, finds the replicas through a fake Kubernetes API, and has
real data planes follow it. Timed, from the event until every data plane serves accordingly:

| event                                              | until                                    |
|----------------------------------------------------|------------------------------------------|
| the last endpoint was announced, fakes are empty   | all models are called on all replicas    |
| a control plane starts, the fakes hold everything  | the same; before it, all replicas named  |
| an endpoint comes                                  | every data plane calls it                |
| an endpoint is terminating                         | no data plane calls it                   |
| a replica dies, its endpoint stays                 | no data plane calls it by the snapshot   |
| a label moves                                      | every data plane calls the other version |

Then nothing happens for a while: what the control plane uses at rest, beside the bytes of a
snapshot and the memory of a control plane and of a data plane's worker. The fakes share the cores;
their CPU time is counted apart. `fleet_parts` measures the parts of it in one process.

Prints a table and writes `loadtests/results/fleet-*.json`; `fleet_report` writes the page.
"""

import argparse
import asyncio
import dataclasses
import signal
import statistics
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.bench import fleet_parts, machine
from loadtests.bench.fleet_cluster import Cluster
from loadtests.bench.fleet_fakes import name_of
from loadtests.bench.fleet_planes import Planes, calls_all, labelled, named, names_all, newer
from loadtests.bench.fleet_scene import Fakes, Scene, scene
from loadtests.bench.fleet_strangers import Watch
from loadtests.bench.results import FOLDER, today, write_page
from serve.control.batching.observer import PER_SECOND

SIZES = (50, 100, 200, 500, 1000, 2000, 5000)
MODELS, PLANES = 50, 10
LOAD_SECONDS = 0.2  # that a fake takes to load a version
COLD = 500  # replicas up to which a fleet that is empty is loaded, too
MANY = 1000  # replicas from which on fewer events are timed
REST, SETTLE = 15.0, 3.0  # seconds
APART = 0.25  # seconds between two events


@dataclass(frozen=True, slots=True)
class Rest:
    """What is used while nothing happens: CPU seconds per second, and questions per second."""

    control: float
    fakes: float
    looks: float  # RepositoryIndex
    counts: float  # ModelStatistics
    scrapes: float  # metrics
    api: int  # requests to the Kubernetes API in all that time
    seconds: float


@dataclass(frozen=True, slots=True)
class Size:
    """One size. Times in seconds, each event by itself; memory in MiB, snapshots in bytes."""

    replicas: int
    planes: int
    models: int
    cold: float | None  # an empty fleet, until everything is called
    cold_cpu: float | None  # CPU seconds of the control plane in it
    named: float  # from the control plane's start until all data planes name all replicas
    called: float  # … until everything is called
    called_cpu: float
    came: tuple[float, ...]
    went: tuple[float, ...]
    died: tuple[float, ...]
    moved: tuple[float, ...]
    rest: Rest
    snapshot: int
    compressed: int
    control_memory: float
    worker_memory: float
    fakes_cpu: float  # seconds, in all


@dataclass(slots=True)
class Bench:
    """What one size is measured with."""

    scene: Scene
    planes: Planes
    fakes: Fakes
    cluster: Cluster
    api: Any

    async def size(self, replicas: int) -> Size:
        """Everything about a fleet of this size."""
        say(f"{replicas} replicas")
        begun = self.scene.cpu(self.scene.process("fakes"))
        cold = await self._cold(replicas) if replicas <= COLD else (None, None)
        warm = await self._warm(replicas)
        moved = await self._label(20 if replicas <= MANY else 10)
        came, went, died = await self._members(replicas, 20 if replicas < MANY else 10)
        rest = await self._rest(max(REST, 1.1 * replicas / PER_SECOND))  # a whole round of readings
        data = self.planes.newest
        memory = self.scene.memory
        found = Size(
            *(replicas, len(self.planes), MODELS, *cold, *warm, came, went, died, moved, rest),
            snapshot=len(data),
            compressed=len(zlib.compress(data, 1)),
            control_memory=memory(self.scene.control),
            worker_memory=statistics.median(
                memory(self.scene.process(f"plane-{number}")) for number in range(len(self.planes))
            ),
            fakes_cpu=self.scene.cpu(self.scene.process("fakes")) - begun,
        )
        self.scene.stop_control()
        return found

    async def _start(self, replicas: int) -> None:
        self.scene.stop_control()
        self.cluster.announce(range(1, replicas + 1))
        self.scene.start_control(self.api.url)

    async def _cold(self, replicas: int) -> tuple[float, float]:
        await self.fakes.order(forget=True, load_seconds=LOAD_SECONDS)
        before, begun = self.planes.newest, time.monotonic()
        await self._start(replicas)
        check = newer(before, calls_all(replicas, len(self.scene.targets)))
        ended = await self.planes.all(check, "every model on every replica")
        say(f"  cold: {ended - begun:.1f} s")
        return ended - begun, self.scene.cpu(self.scene.control)

    async def _warm(self, replicas: int) -> tuple[float, float, float]:
        await self.fakes.order(hold=self.scene.targets, first=1, count=replicas, load_seconds=0)
        before, begun = self.planes.newest, time.monotonic()
        await self._start(replicas)
        check = newer(before, names_all(replicas))
        there = await self.planes.all(check, "all replicas")
        check = newer(before, calls_all(replicas, len(self.scene.targets)))
        called = await self.planes.all(check, "every model on every replica")
        say(f"  warm: {there - begun:.1f} s, {called - begun:.1f} s")
        return there - begun, called - begun, self.scene.cpu(self.scene.control)

    async def _label(self, times: int) -> tuple[float, ...]:
        found = []
        await self.scene.move_label(1)
        await self.planes.all(labelled(1), "the label")
        for number in range(times):
            version = 2 - number % 2

            async def move(version: int = version) -> None:
                await self.scene.move_label(version)

            found.append(await self._timed(move, labelled(version), "the label"))
        say(f"  label: {statistics.median(found):.3f} s")
        return tuple(found)

    async def _members(self, replicas: int, times: int) -> tuple[tuple[float, ...], ...]:
        """Another one comes and goes; then one dies whose endpoint stays."""
        came, went, died = [], [], []
        another = replicas + 1
        await self.fakes.order(hold=self.scene.targets, first=another, count=1)
        for _ in range(times):
            came.append(await self._timed(self._add(another), named(another, times=2), "one more"))
            went.append(await self._timed(self._end(another), named(another, times=0), "one less"))
            self.cluster.take(another)
            another += 1
            await self.fakes.order(hold=self.scene.targets, first=another, count=1)
        for number in range(1, 1 + times // 4):
            died.append(await self._timed(self._kill(number), named(number, times=1), "a death"))
            await self.fakes.order(back=[number], hold=self.scene.targets, first=number, count=1)
            await self.planes.all(named(number, times=2), f"{name_of(number)} again")
        medians = (statistics.median(one) for one in (came, went, died))
        say("  came {:.3f} s, went {:.3f} s, died {:.3f} s".format(*medians))
        return tuple(came), tuple(went), tuple(died)

    def _add(self, number: int) -> Callable[[], Awaitable[None]]:
        async def do() -> None:
            self.cluster.add(number)

        return do

    def _end(self, number: int) -> Callable[[], Awaitable[None]]:
        async def do() -> None:
            self.cluster.end(number)

        return do

    def _kill(self, number: int) -> Callable[[], Awaitable[None]]:
        async def do() -> None:
            await self.fakes.order(away=[number])

        return do

    async def _timed(
        self, do: Callable[[], Awaitable[None]], holds: Callable[[bytes], bool], what: str
    ) -> float:
        await asyncio.sleep(APART)
        begun = time.monotonic()
        await do()
        return await self.planes.all(holds, what) - begun

    async def _rest(self, seconds: float) -> Rest:
        await asyncio.sleep(SETTLE)
        before, begun = await self._counted(), time.monotonic()
        await asyncio.sleep(seconds)
        after, took = await self._counted(), time.monotonic() - begun
        control, fakes, looks, counts, scrapes, api = (
            later - earlier for later, earlier in zip(after, before, strict=True)
        )
        say(f"  rest: {control / took:.1%} of a core, {looks / took:.0f} looks/s")
        rates = (one / took for one in (control, fakes, looks, counts, scrapes))
        return Rest(*rates, api=int(api), seconds=took)

    async def _counted(self) -> tuple[float, ...]:
        calls = (await self.fakes.order())["calls"]
        return (
            self.scene.cpu(self.scene.control),
            self.scene.cpu(self.scene.process("fakes")),
            *(calls.get(name, 0) for name in ("RepositoryIndex", "ModelStatistics", "metrics")),
            len(self.api.requests),
        )


def say(text: str) -> None:
    """A line of progress."""
    print(text, flush=True)


async def measure(
    sizes: Sequence[int], planes: int, folder: Path, save: Callable[[list[Size]], None]
) -> list[Size]:
    """All sizes, the smallest first, saved one by one; those that were measured when one fails."""
    found: list[Size] = []
    async with scene(folder, models=MODELS, planes=planes) as parts:
        bench = Bench(*parts)
        for replicas in sorted(sizes):
            try:
                found.append(await bench.size(replicas))
                save(found)
            except (TimeoutError, RuntimeError) as error:
                say(f"  {replicas} replicas: {error}")
                break
    return found


def main() -> int:
    """Measure, print and save; exit status 1 when a size could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--planes", type=int, default=PLANES)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the logs")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all is ended that runs
    begun, watch = time.monotonic(), Watch()
    path = FOLDER / f"fleet-{time.strftime('%Y%m%d-%H%M%S')}.json"
    parts = fleet_parts.measure(asked.sizes, MODELS)

    def save(sizes: list[Size]) -> None:
        page = {
            "date": today(),
            "machine": machine.describe(),
            "load_seconds": LOAD_SECONDS,
            "others": watch.others,
            "sizes": [dataclasses.asdict(one) for one in sizes],
            "parts": [dataclasses.asdict(one) for one in parts],
        }
        write_page(path, page)

    with tempfile.TemporaryDirectory(prefix="sg-fleet-") as folder:
        where = asked.keep or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        sizes = asyncio.run(measure(asked.sizes, asked.planes, where, save))
    watch.end()
    save(sizes)
    say(f"written: {path} after {time.monotonic() - begun:.0f} s")
    return 0 if len(sizes) == len(asked.sizes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
