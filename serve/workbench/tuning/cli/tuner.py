"""`servegate batching tune`: from the options to a bench, from measurements to a report.

What is seen of a tuning while it goes.

| where         | what is seen                                                              |
|---------------|---------------------------------------------------------------------------|
| on a terminal | a bar of the budget, and two lines: what is measured, and the best so far |
| in a log      | a line for each measurement                                               |
| with --json   | an event `progress` for each measurement                                  |

The load of a tuning: what calls bring, from the options to lanes with every body in them.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve.capacity.search import Halving, candidates
from serve.cli.asked import ModelReference
from serve.cli.batching.rollout_progress import ConfigurationFollower, send
from serve.cli.callers import HttpCaller
from serve.cli.channel import Channel
from serve.cli.client import connect
from serve.cli.endings import INTERRUPTED
from serve.cli.infer import RecordedModel
from serve.cli.output import say
from serve.cli.still_bar import StillBar
from serve.cli.talk import Bars, CommandTalk, JsonEvents, duration
from serve.core.errors import Invalid, ServegateError
from serve.tensors.metadata import Metadata
from serve.workbench.loadtest import encoded_bodies
from serve.workbench.loadtest.cli.check import check_lanes
from serve.workbench.loadtest.cli.inputs import InputRequest, read_requests
from serve.workbench.loadtest.cli.interrupts import Stopping, until_stopped
from serve.workbench.loadtest.cli.report_folder import machine, versions
from serve.workbench.loadtest.encoded_bodies import CallWay
from serve.workbench.loadtest.plan import Lane, LaneProtocol
from serve.workbench.loadtest.traces import read_trace
from serve.workbench.tuning.bench import LoadBench, opened
from serve.workbench.tuning.cli.options import PreparedTuning, TuningRequest, numbers_of, prepare
from serve.workbench.tuning.execution_counts import Statistics
from serve.workbench.tuning.measurements import (
    MeasuredWorkload,
    Measuring,
    Stopped,
    mean_rows,
    parse_rows,
)
from serve.workbench.tuning.outcome import TuningOutcome, outcome_of, tuned_of
from serve.workbench.tuning.report import document, keep
from serve.workbench.tuning.session import Session
from serve.workbench.tuning.setups import normal, setup_of
from serve.workbench.tuning.state import TuningState, TuningSubject

if TYPE_CHECKING:
    from serve.workbench.tuning.session import Now


# --- the load of a tuning -------------------------------------------------------------------------


_TIMEOUT = 30.0  # seconds for the first calls


@dataclass(frozen=True, slots=True)
class TuningLoad:
    """`rows` of calls as `1:80,8:20`, `inputs` as `servegate infer` takes them, and a trace."""

    rows: str
    inputs: tuple[str, ...]
    trace: Path | None

    def workload(
        self, bench: LoadBench, preprocessing: Callable[[], Mapping[str, Any]]
    ) -> tuple[MeasuredWorkload, tuple[str, ...]]:
        """The calls, and notes for people. Each kind was made once, so what is wrong is told."""
        with HttpCaller(bench.http, timeout=_TIMEOUT) as caller:
            metadata = caller.metadata(ModelReference(bench.name, str(bench.version)))
        sizes = parse_rows(self.rows)
        if not all(one.has_batch for one in metadata.inputs.values()) and sizes != ((1, 1.0),):
            raise Invalid(
                f"--rows {self.rows} does not fit model '{bench.name}'",
                why="not every input has a batch dimension",
                try_this="leave --rows out",
            )
        made = [self._lane(bench, metadata, preprocessing, *one) for one in sizes]
        lanes = tuple(lane for lane, _ in made)
        notes = (note for _, some in made for note in some)
        told = (*notes, *check_lanes(lanes, timeout=_TIMEOUT))
        trace = read_trace(self.trace) if self.trace else ()
        return MeasuredWorkload(lanes, mean_rows(sizes), trace), tuple(dict.fromkeys(told))

    def _lane(
        self,
        bench: LoadBench,
        metadata: Metadata,
        preprocessing: Callable[[], Mapping[str, Any]],
        rows: int,
        share: float,
    ) -> tuple[Lane, tuple[str, ...]]:
        wish = InputRequest(self.inputs, batch=rows if rows > 1 else 0)
        ready = read_requests(bench.name, metadata, wish, preprocessing)
        asked = encoded_bodies.RequestedVersion(bench.name, str(bench.version), ready.datatypes)
        way = CallWay(LaneProtocol.GRPC, bench.address, share)
        (lane,) = encoded_bodies.lanes((way,), ready.requests, asked)
        return replace(lane, name=f"grpc, {rows} rows"), ready.notes


# --- what is seen of a tuning while it goes -------------------------------------------------------


Watch = Callable[["Now"], None]


@contextmanager
def watching(talk: CommandTalk) -> Iterator[Watch]:
    """What takes the progress."""
    if isinstance(talk, JsonEvents):
        yield lambda now: talk.tell("progress", **asdict(now))
    elif isinstance(talk, Bars):
        bar = StillBar()
        try:
            yield partial(_drawn, bar)
        finally:
            bar.close()
    else:
        yield lambda now: say(line(now))


def line(now: "Now") -> str:
    """`rung 1: batch 8, 1 instance at 120/s; best 100/s with …; 2 min left`."""
    best = f"; best {now.best}" if now.best else ""
    return f"{now.text}{best}; {duration(now.left)} left"


def _drawn(bar: StillBar, now: "Now") -> None:
    text = f"{duration(now.left)} left  {now.text}"
    if now.best:
        text += f"\nbest: {now.best}"
    bar.show(text, now.share)


# --- `servegate batching tune` --------------------------------------------------------------------


_MOST = 40  # measurements of a search
_WITHIN = 1800.0  # seconds for bringing a change to all replicas


def run(wish: TuningRequest, talk: CommandTalk) -> int:
    """Tune, keep a report, tell it, and apply what was found if that was asked; the exit status."""
    admin = connect(wish.admin, wish.key_file, reason="servegate batching tune", timeout=60.0)
    prepared = prepare(wish, admin)
    try:
        state = until_stopped(lambda stopping: _tune(prepared, stopping, talk))
    except (KeyboardInterrupt, ServegateError):
        prepared.say_how_to_go_on()
        raise
    if state is None:
        prepared.say_how_to_go_on()
        talk.tell("result", ok=False, exit=INTERRUPTED, code="interrupted")
        return INTERRUPTED
    outcome = outcome_of(state)
    page = document(state, outcome, command=wish.command, machine=machine(), versions=versions())
    path = keep(page, prepared.folder)
    _show(talk, state, outcome, path)
    applied = ""
    if wish.watch is not None and outcome.is_gain:
        applied = _apply(prepared, state, outcome, talk)
    facts = {name: page[name] for name in ("verdict", "gain", "best", "compared", "change")}
    talk.tell("result", ok=True, exit=0, report=str(path), applied=applied, **facts)
    return 0


async def _tune(
    prepared: PreparedTuning, stopping: Stopping, talk: CommandTalk
) -> TuningState | None:
    """Measure until it is over; None when somebody has ended it."""
    wish, fields = prepared.wish, prepared.page["fields"]
    where = f"replica {wish.replica}" if wish.replica else "a temporary Triton"
    talk.tell("bench", f"loading {prepared.model} version {prepared.number} on {where}")
    async with (
        prepared.admin.asynchronous() as client,
        opened(client, prepared.model, prepared.number, fields, wish.replica) as bench,
    ):
        statistics = Statistics(bench.http, bench.name, bench.version)
        config = normal(await statistics.config())
        given = TuningLoad(prepared.rows, wish.inputs, wish.trace)
        recorded = RecordedModel(prepared.admin, prepared.model)
        workload, notes = await asyncio.to_thread(given.workload, bench, recorded.preprocessing)
        for note in notes:
            talk.tell("note", note)
        state = prepared.resumed or _begin(prepared, config)
        measuring = Measuring(
            workload, prepared.objective, statistics, unit=wish.unit, stop=stopping.event
        )
        with watching(talk) as tell:
            session = Session(
                bench,
                measuring,
                state,
                prepared.folder,
                budget=wish.budget,
                clock=time.monotonic,
                tell=tell,
            )
            try:
                await session.run()
            except Stopped:
                return None
    return state


def _begin(prepared: PreparedTuning, config: Mapping[str, Any]) -> TuningState:
    """A new search over all setups that are allowed, the present one included."""
    wish, present = prepared.wish, setup_of(config)
    sizes = parse_rows(wish.rows)
    least, numbers = max(rows for rows, _ in sizes), numbers_of(wish.instances)
    if present.max_batch_size and present.max_batch_size < least:
        raise Invalid(
            f"the current configuration refuses calls of {least} rows",
            why=f"its max_batch_size is {present.max_batch_size}",
            try_this="pass --rows with fewer rows",
        )
    largest = max(wish.max_batch, least) if present.max_batch_size else 0
    grid = [
        one
        for one in candidates(largest, instances=max(numbers), objective=prepared.objective)
        if one.instances in numbers and (not largest or one.max_batch_size >= least)
    ]
    if present not in grid:
        grid.append(present)
    most = int(0.6 * wish.budget / (wish.unit + 2.0))
    search = Halving(
        grid,
        prepared.objective,
        rows=max(1, round(mean_rows(sizes))),
        most=min(_MOST, max(5, most)),
    )
    load = f"arrivals of {wish.trace.name}" if wish.trace else "Poisson arrivals"
    subject = TuningSubject(
        prepared.model,
        prepared.number,
        str(prepared.objective),
        wish.rows,
        load,
        wish.replica,
        dict(config),
        dict(prepared.page["fields"]),
    )
    return TuningState(subject, search, datetime.now(UTC).isoformat(timespec="seconds"))


def _show(talk: CommandTalk, state: TuningState, outcome: TuningOutcome, path: Path) -> None:
    """The result for people."""
    talk.tell("verdict", outcome.verdict, **asdict(outcome.compared))
    for note in state.notes:
        talk.tell("note", note)
    if outcome.is_gain:
        talk.tell("change", "\n".join(("in config.pbtxt:", *outcome.lines(state.subject))))
        talk.tell("command", outcome.command(state.subject))
    talk.tell("report", f"report: {path}", path=str(path))


def _apply(
    prepared: PreparedTuning, state: TuningState, outcome: TuningOutcome, talk: CommandTalk
) -> str:
    """Put it live and watch; what has become of it. The error says that it was taken back."""
    wish = prepared.wish
    assert wish.watch is not None
    body = {
        "fields": dict(outcome.fields),
        "tuned": tuned_of(state, outcome, datetime.now(UTC)),
    }
    admin = connect(wish.admin, wish.key_file, reason=f"tuned: {outcome.verdict}"[:900])

    async def put() -> None:
        async with admin.asynchronous() as client:
            channel = Channel(client, talk)
            path = f"{prepared.path}?wait=false&watch={wish.watch:g}"
            await send(channel, path, body, if_match=str(prepared.page["etag"]))
            following = ConfigurationFollower(channel, talk, prepared.path)
            await following.until_over(_WITHIN + (wish.watch or 0.0))

    talk.tell("apply", f"applying it to the replicas, and watching it for {wish.watch:g} s")
    asyncio.run(put())
    talk.tell("applied", "applied and kept")
    return "kept"
