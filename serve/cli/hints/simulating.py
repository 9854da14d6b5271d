"""What `servegate hints simulate` does: a scene from options, runs in processes, a table."""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serve.capacity.fleets.comparing import Result, Scene, Variant, compare, variants
from serve.capacity.fleets.fronts import Point, points
from serve.capacity.fleets.loads import LOADS, Floats, repeated
from serve.capacity.fleets.seen import Server
from serve.capacity.fleets.traces import read_times
from serve.capacity.service import Service
from serve.cli.output import as_json, say, table
from serve.cli.still_bar import StillBar
from serve.cli.talk import Bars, Lines, Talk, talk
from serve.core.errors import Invalid
from serve.core.objectives import Objective

_RATE, _SCATTER = 100.0, 0.1
_BATCH, _OBJECTIVE, _SERVICE = 8, "p99<2s", "160+40"
_MOST_CALLS = 20_000_000  # of one run, which holds the times of all
_SHORTEST = 60.0  # seconds of a trace
_SERVICE_FORM = re.compile(r"(\d+(?:\.\d+)?)\+(\d+(?:\.\d+)?)\Z", re.ASCII)
_BOUNDS_FORM = re.compile(r"(\d{1,4})\.\.(\d{1,4})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wish:
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

    def play(self) -> list[Result]:
        those = [each for each in variants() if str(each) in self.names]
        return list(compare(self.scene, self.load, self.seed, those, times=self.times))


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
        raise Invalid("--service and --model exclude each other")
    known = _of_model(model, *admin) if model else {}
    line = known.get("service") or _service(service or _SERVICE)
    limit = Objective.parse(objective or known.get("objective") or _OBJECTIVE).limit
    server = Server(line, batch or known.get("batch") or _BATCH, limit, cold_start)
    if line.time(1) > limit:
        raise Invalid(
            "a single call takes longer than the objective allows",
            why=f"{1000 * line.time(1):.3g} ms for a batch of one, limit {1000 * limit:.3g} ms",
            try_this="--objective 'p99<…' with a higher limit",
        )
    least, most = _bounds(bounds)
    return Scene(server, _RATE, 0.0, least, most)


def run(wish: Wish, scene: Scene, *, json: bool) -> None:
    """Play it, say how far it is, and tell what was found."""
    if wish.plot is not None and wish.plot.suffix != ".svg":
        raise Invalid(f"'{wish.plot}' cannot be drawn", why="only SVG is", try_this="a name.svg")
    those = _variants(wish)
    found = points(_played(_runs(wish, scene, those), talk(json=False)))
    if wish.plot is not None:
        from serve.cli.hints.fronts_picture import svg

        wish.plot.write_text(svg(found, "Late calls against replica-hours ÷ the oracle's"))
        say(f"drew {wish.plot}")
    if json:
        as_json({"scene": _scene_page(scene), "points": [dataclasses.asdict(e) for e in found]})
    else:
        table(HEADS, [row(one) for one in found])


HEADS = ("load", "policy", "late", "replica-hours", "÷ oracle", "turns/h")


def row(one: Point) -> tuple[str, ...]:
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


def _variants(wish: Wish) -> list[Variant]:
    every = variants()
    names = dict.fromkeys(each.scaler for each in every)
    for policy in wish.policies:
        if policy not in names:
            raise Invalid(f"there is no policy '{policy}'", why=f"policies: {', '.join(names)}")
    return [
        each
        for each in every
        if (each.is_usual or wish.all_parameters)
        and (not wish.policies or each.scaler in wish.policies)
    ]


def _runs(wish: Wish, scene: Scene, those: Sequence[Variant]) -> list[_Run]:
    names = frozenset(map(str, those))
    for load in wish.loads:
        if load not in LOADS:
            raise Invalid(f"there is no load '{load}'", why=f"loads: {', '.join(LOADS)}")
    if wish.trace is not None:
        if wish.loads:
            raise Invalid("--load and --trace exclude each other")
        return list(_traced(wish, wish.trace, scene, names))
    scene = replace(scene, mean=wish.rate or _RATE, seconds=60 * wish.minutes)
    _check_size(scene.mean * scene.seconds)
    seeds = range(1, wish.seeds + 1)
    return [_Run(scene, load, seed, names) for seed in seeds for load in wish.loads or LOADS]


def _traced(wish: Wish, path: Path, scene: Scene, names: frozenset[str]) -> Iterator[_Run]:
    try:
        with path.open(newline="", errors="replace") as lines:
            trace = read_times(lines, path.name)
    except OSError as error:
        raise Invalid(f"'{path}' cannot be read", why=error.strerror or str(error)) from error
    seconds = float(trace[-1])
    if seconds < _SHORTEST:
        raise Invalid(f"{path.name} lasts for {seconds:.3g} s", why=f"{_SHORTEST:g} are needed")
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
            why=f"{_MOST_CALLS:,} are the most",
            try_this="a lower --rate, or fewer --minutes",
        )


def _played(runs: Sequence[_Run], talk: Talk) -> Iterable[Result]:
    """All results, run by run in their order; meanwhile people see how many are done."""
    found: dict[int, list[Result]] = {}
    bar = StillBar() if isinstance(talk, Bars) else None
    try:
        with ProcessPoolExecutor(min(os.cpu_count() or 1, len(runs))) as pool:
            futures = {pool.submit(each.play): number for number, each in enumerate(runs)}
            for done, future in enumerate(as_completed(futures), start=1):
                found[futures[future]] = future.result()
                _tell(bar, talk, runs[futures[future]], done, len(runs))
    finally:
        if bar is not None:
            bar.close()
    return [one for number in sorted(found) for one in found[number]]


def _tell(bar: StillBar | None, talk: Talk, run: _Run, done: int, count: int) -> None:
    text = f"{done}/{count} {run.load}, seed {run.seed}"
    if bar is not None:
        bar.show(text, done, count)
    elif isinstance(talk, Lines):
        say(text)


def _service(text: str) -> Service:
    found = _SERVICE_FORM.match(text.strip())
    fixed, per_row = (float(each) / 1000 for each in found.groups()) if found else (0.0, 0.0)
    if not 0 < fixed + per_row < 1e4:
        raise Invalid(
            f"'{text}' is not a service time",
            why="milliseconds of an execution, and of each row in it",
            try_this="--service 160+40",
        )
    return Service(fixed, per_row, scatter=_SCATTER)


def _bounds(text: str) -> tuple[int, int]:
    found = _BOUNDS_FORM.match(text.strip())
    least, most = (int(each) for each in found.groups()) if found else (0, 0)
    if not 1 <= least <= most:
        raise Invalid(f"'{text}' are no bounds", why="two numbers from 1 on", try_this="1..8")
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
            f"it is not known how long an execution of {text} takes",
            why="too little was executed in the last minutes, or always batches of one size",
            try_this="some load first, or --service",
        )
    line, instances = page["service"], max(1, page["instances"])
    service = Service(line["fixed"] / instances, line["per_row"] / instances, line["scatter"])
    return {
        "service": service,
        "batch": max(1, page["max_batch_size"]),
        "objective": page["objective"],
    }
