"""What `servegate hints simulate` does: a scene from options, runs in processes, a table."""

import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Self

from serve.capacity.service import ServiceTime
from serve.cli.output import as_json, say, table
from serve.cli.still_bar import StillBar
from serve.cli.talk import Bars, CommandTalk, LogTalk, duration, talk
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.workbench.simulator.comparison import Scene, SimulationResult, Variant, compare, variants
from serve.workbench.simulator.fronts import FrontPoint, points
from serve.workbench.simulator.loads import LOADS, Floats, repeated
from serve.workbench.simulator.seen import SimulatedServer
from serve.workbench.simulator.traces import read_times

_RATE, _SCATTER = 100.0, 0.1
_BATCH, _OBJECTIVE, _SERVICE = 8, "p99<2s", "160+40"
_MOST_CALLS = 20_000_000  # of one run, which holds the times of all
_SHORTEST = 60.0  # seconds of a trace
_SERVICE_FORM = re.compile(r"(\d+(?:\.\d+)?)\+(\d+(?:\.\d+)?)\Z", re.ASCII)
_EVERY = 3.0  # seconds between two lines
_BOUNDS_FORM = re.compile(r"(\d{1,4})\.\.(\d{1,4})\Z", re.ASCII)

_Counted = tuple[str, int, str] | None  # load, seed and policy of a simulation; None: a run is over
_counted: "SimpleQueue[_Counted] | None" = None  # of this process, when it is one of a pool


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """What is to be played; `rate` in calls/s."""

    loads: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: int
    trace: Path | None
    rate: float | None
    minutes: float
    all_parameters: bool
    plot: Path | None


@dataclass(frozen=True, slots=True)
class _Run:
    """One load with one seed; `names` of the variants. `times`: a trace's."""

    scene: Scene
    load: str
    seed: int
    names: frozenset[str]
    times: Floats | None = None

    def play(self) -> list[SimulationResult]:
        those = [each for each in variants() if str(each) in self.names]
        found = []
        for one in compare(self.scene, self.load, self.seed, those, times=self.times):
            found.append(one)
            if _counted is not None:
                _counted.put((self.load, self.seed, f"{one.scaler} {one.parameter}".rstrip()))
        return found


def scene_of(
    *,
    service: str,
    model: str,
    batch: int | None,
    objective: str,
    cold_start: float,
    bounds: str,
    admin: tuple[str | None, Path | None],
) -> Scene:
    """The replicas, as the options tell; `Invalid` for what they cannot be."""
    if service and model:
        raise Invalid("--service and --model cannot be combined")
    known = _of_model(model, *admin) if model else {}
    line = known.get("service") or _service(service or _SERVICE)
    limit = Objective.parse(objective or known.get("objective") or _OBJECTIVE).limit
    server = SimulatedServer(line, batch or known.get("batch") or _BATCH, limit, cold_start)
    if line.time(1) > limit:
        raise Invalid(
            "a single call takes longer than the objective allows",
            why=f"a batch of one takes {1000 * line.time(1):.3g} ms, and the limit is "
            f"{1000 * limit:.3g} ms",
            try_this="pass --objective with a higher limit",
        )
    least, most = _bounds(bounds)
    return Scene(server, _RATE, 0.0, least, most)


def run(wish: SimulationRequest, scene: Scene, *, json: bool) -> None:
    """Play it, say how far it is, and tell what was found."""
    if wish.plot is not None and wish.plot.suffix != ".svg":
        raise Invalid(
            f"--plot cannot be '{wish.plot}'",
            why="the chart is an SVG file",
            try_this="--plot cost.svg",
        )
    those = _variants(wish)
    found = points(_played(_runs(wish, scene, those), talk(json=False)))
    if wish.plot is not None:
        from serve.workbench.simulator.cli.fronts_picture import svg

        wish.plot.write_text(svg(found, "Late calls against replica-hours relative to the oracle"))
        say(f"wrote {wish.plot}")
    if json:
        as_json({"scene": _scene_page(scene), "points": [dataclasses.asdict(e) for e in found]})
    else:
        table(HEADS, [row(one) for one in found])


HEADS = ("load", "policy", "late", "replica-hours", "÷ oracle", "reversals/h")


def row(one: FrontPoint) -> tuple[str, ...]:
    """One line of the table."""
    return (
        one.load,
        f"{one.scaler} {one.parameter}".rstrip(),
        f"{100 * one.late:.2f} %",
        f"{one.hours:.2f}",
        f"{one.cost:.2f}",
        f"{one.turns:.1f}",
    )


def _scene_page(scene: Scene) -> dict[str, Any]:
    server = scene.server
    return {
        "fixed": server.service.fixed,
        "per_row": server.service.per_row,
        "batch": server.largest,
        "limit": server.limit,
        "cold_start": server.cold_start,
        "bounds": [scene.least, scene.most],
    }


def _variants(wish: SimulationRequest) -> list[Variant]:
    every = variants()
    names = dict.fromkeys(each.scaler for each in every)
    for policy in wish.policies:
        if policy not in names:
            raise Invalid(
                f"there is no policy '{policy}'", why=f"the policies are {', '.join(names)}"
            )
    return [
        each
        for each in every
        if (each.is_usual or wish.all_parameters)
        and (not wish.policies or each.scaler in wish.policies)
    ]


def _runs(wish: SimulationRequest, scene: Scene, those: Sequence[Variant]) -> list[_Run]:
    names = frozenset(map(str, those))
    for load in wish.loads:
        if load not in LOADS:
            raise Invalid(f"there is no load '{load}'", why=f"the loads are {', '.join(LOADS)}")
    if wish.trace is not None:
        if wish.loads:
            raise Invalid("--load and --trace cannot be combined")
        return list(_traced(wish, wish.trace, scene, names))
    scene = replace(scene, mean=wish.rate or _RATE, seconds=60 * wish.minutes)
    _check_size(scene.mean * scene.seconds)
    seeds = range(1, wish.seeds + 1)
    return [_Run(scene, load, seed, names) for seed in seeds for load in wish.loads or LOADS]


def _traced(
    wish: SimulationRequest, path: Path, scene: Scene, names: frozenset[str]
) -> Iterator[_Run]:
    try:
        with path.open(newline="", errors="replace") as lines:
            trace = read_times(lines, path.name)
    except OSError as error:
        raise Invalid(f"cannot read '{path}'", why=error.strerror or str(error)) from error
    seconds = float(trace[-1])
    if seconds < _SHORTEST:
        raise Invalid(
            f"the trace '{path.name}' is too short",
            why=f"it lasts {seconds:.3g} s, and at least {_SHORTEST:g} s are required",
        )
    own = len(trace) / seconds
    scene = replace(scene, mean=wish.rate or own, seconds=seconds)
    _check_size(scene.mean * seconds)
    for seed in range(1, wish.seeds + 1):
        times = trace if wish.rate is None else repeated(trace, wish.rate, seed=seed)
        yield _Run(scene, path.stem, seed, names, times)


def _check_size(calls: float) -> None:
    if calls > _MOST_CALLS:
        raise Invalid(
            f"{calls:,.0f} calls are too many to simulate",
            why=f"the maximum is {_MOST_CALLS:,}",
            try_this="pass a lower --rate, or fewer --minutes",
        )


def _played(runs: Sequence[_Run], talk: CommandTalk) -> Iterable[SimulationResult]:
    """All results, run by run in their order; meanwhile people see how many are done."""
    counted: SimpleQueue[_Counted] = get_context().SimpleQueue()
    count = sum(len(each.names) + 1 for each in runs)  # the oracle is one more
    processes = min(os.cpu_count() or 1, len(runs))
    with (
        SimulationProgress(talk, count, time.monotonic) as progress,
        ProcessPoolExecutor(processes, initializer=_count_in, initargs=(counted,)) as pool,
    ):
        progress.begin(processes)
        futures = [pool.submit(each.play) for each in runs]
        for future in futures:
            future.add_done_callback(lambda _: counted.put(None))
        ended = 0
        while ended < len(runs):
            one = counted.get()
            if one is None:
                ended += 1
            else:
                progress.add(*one)
        return [one for future in futures for one in future.result()]


def _count_in(counted: "SimpleQueue[_Counted]") -> None:
    """In a new process: where it says what it has simulated."""
    global _counted
    _counted = counted


class SimulationProgress:
    """How many simulations are done: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, talk: CommandTalk, count: int, clock: Callable[[], float]) -> None:
        self._bar = StillBar() if isinstance(talk, Bars) else None
        self._has_lines = isinstance(talk, LogTalk)
        self._count, self._done = count, 0
        self._clock = clock
        self._began = self._told = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, processes: int) -> None:
        """Say at once what is about to be done."""
        self._show(f"{self._count} simulations, {processes} at a time")

    def add(self, load: str, seed: int, policy: str) -> None:
        """One more is done."""
        self._done += 1
        now = self._clock()
        is_last = self._done == self._count
        if self._bar is None and not is_last and now - self._told < _EVERY:
            return
        self._told = now
        left = (now - self._began) / self._done * (self._count - self._done)
        text = f"{self._done}/{self._count} {load}, seed {seed}: {policy}"
        self._show(text if is_last else f"{text}; {duration(left)} left")

    def _show(self, text: str) -> None:
        if self._bar is not None:
            self._bar.show(text, self._done, self._count)
        elif self._has_lines:
            say(text)


def _service(text: str) -> ServiceTime:
    found = _SERVICE_FORM.match(text.strip())
    fixed, per_row = (float(each) / 1000 for each in found.groups()) if found else (0.0, 0.0)
    if not 0 < fixed + per_row < 1e4:
        raise Invalid(
            f"--service cannot be '{text}'",
            why="expected milliseconds per execution + milliseconds per row",
            try_this="--service 160+40",
        )
    return ServiceTime(fixed, per_row, scatter=_SCATTER)


def _bounds(text: str) -> tuple[int, int]:
    found = _BOUNDS_FORM.match(text.strip())
    least, most = (int(each) for each in found.groups()) if found else (0, 0)
    if not 1 <= least <= most:
        raise Invalid(
            f"--bounds cannot be '{text}'",
            why="expected MIN..MAX, from 1",
            try_this="--bounds 1..8",
        )
    return least, most


def _of_model(text: str, admin_url: str | None, key_file: Path | None) -> dict[str, Any]:
    """What the gateway has learned of a model. Several instances count as one, so much faster."""
    from serve.cli.asked import parse_asked
    from serve.cli.client import connect, segment
    from serve.cli.versions import called_number

    asked, admin = parse_asked(text), connect(admin_url, key_file)
    number = called_number(admin, asked)
    page = admin.get(f"/api/models/{segment(asked.model)}/versions/{number}/batching")
    if page["service"] is None:
        raise Invalid(
            f"the duration of an execution of {text} is not known",
            why="there were too few recent executions, or all batches had the same size",
            try_this="send some load first, or pass --service",
        )
    line, instances = page["service"], max(1, page["instances"])
    service = ServiceTime(line["fixed"] / instances, line["per_row"] / instances, line["scatter"])
    return {
        "service": service,
        "batch": max(1, page["max_batch_size"]),
        "objective": page["objective"],
    }
