"""The observer: asks the other side of a run, before it, about once a second, and after it.

Who is asked, for what, and how often in seconds:

    http_url    /v2/models/M/stats   Triton's statistics, of all replicas together   2
                /v2, …/config        versions, batching                              before
    metrics_url                      the gateway's metrics, or a bare Triton's       1
    admin_url   /api/replicas        states, queues, GPUs                            1
                /api/history         what was changed                                2
                /api/hints           how many replicas pools should have, and why    2

Each question goes its own way: one that is not answered leaves a hole in its own readings, and a
sentence in `problems`. All of it has to be cheap, because the machine is measured meanwhile.

What changes while a run goes on: states of replicas, and revisions in the history.

Readings about once a second: of replicas, their GPUs, and the gateway's processes.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from serve.triton import metrics
from serve.workbench.loadtest.observations import gateway_counts
from serve.workbench.loadtest.observations.gateway_counts import (
    GatewayCounts,
    GatewayScrape,
    is_gateways,
)
from serve.workbench.loadtest.observations.hints import HintWatch
from serve.workbench.loadtest.observations.local_tritons import is_here, resident, triton_on
from serve.workbench.loadtest.observations.questions import Questions
from serve.workbench.loadtest.observations.timeline import SeriesName, Timeline
from serve.workbench.loadtest.observations.triton_counts import TritonCounts
from serve.workbench.loadtest.observed import Observed, ObservedEvent, ObservedSeries

# --- readings about once a second -----------------------------------------------------------------


_GPU = (
    ("utilization", "utilisation", "share"),
    ("memory_used", "memory", "B"),
    ("power", "power", "W"),
)


class RunReadings:
    """Everything that is read over time. `http_url` is where calls go, for a bare Triton's name."""

    def __init__(self, http_url: str) -> None:
        self._bare = urlsplit(http_url).netloc
        self._timeline = Timeline()
        self._known: dict[str, str] = {}  # replicas that were seen, and their addresses
        self._processes: dict[str, int | None] = {}
        self._read_at: float | None = None

    def __repr__(self) -> str:
        return f"<RunReadings of {', '.join(self._known) or self._bare}>"

    @property
    def series(self) -> tuple[ObservedSeries, ...]:
        """All of them."""
        return self._timeline.series

    def forget(self) -> None:
        """Begin anew: what was read until now was before the run."""
        self._timeline = Timeline()
        self._read_at = None

    def replicas(self, at: float, page: Iterable[Mapping[str, Any]]) -> None:
        """`/api/replicas`; what does not tell any more has holes."""
        told = {str(one["name"]): one for one in page}
        self._known |= {name: str(one["address"]) for name, one in told.items()}
        for name, address in self._known.items():
            one = told.get(name, {})
            state = one.get("state")
            self._add(at, name, "up", "1", None if state is None else float(state == "up"))
            self._add(at, name, "waiting in Triton", "calls", one.get("pending"))
            self._add(at, name, "Host CPU", "share", one.get("cpu_utilization"))
            self._memory(at, name, address)
            self._gpus(at, one.get("gpus", {}))

    def gateway(self, at: float, reading: GatewayScrape, used: Mapping[str, float]) -> None:
        """One scrape of the gateway, and the CPU seconds of its processes since the last one."""
        for name, calls in reading.busy.items():
            self._add(at, name, "calls in flight", "calls", calls)
        every = SeriesName("gateway", "all workers", "calls in flight", "calls")
        self._timeline.add(every, at, reading.in_flight)
        if self._read_at is not None and at > self._read_at:
            for source, seconds in used.items():
                share = seconds / (at - self._read_at)
                self._timeline.add(
                    SeriesName("gateway", source, "CPU (share of one core)", "share"), at, share
                )
        self._read_at = at
        for source, size in (reading.proportional or reading.resident).items():
            self._timeline.add(SeriesName("gateway", source, "memory", "B"), at, size)

    def triton(self, at: float, text: str | None) -> None:
        """A scrape of a bare Triton; `ValueError` where it is none, None where nobody answered."""
        told = None if text is None else metrics.read(text)
        if told is not None:
            self._add(at, self._bare, "waiting in Triton", "calls", told.pending)
            self._add(at, self._bare, "Host CPU", "share", told.cpu_utilization)
            for uuid, one in told.gpus.items():
                self._gpus(at, {uuid: {key: getattr(one, key) for key, _, _ in _GPU}})
        self._memory(at, self._bare, self._bare)

    def _gpus(self, at: float, told: Mapping[str, Mapping[str, Any]]) -> None:
        for uuid, one in told.items():
            for key, name, unit in _GPU:
                self._timeline.add(SeriesName("gpu", uuid, name, unit), at, one.get(key))

    def _memory(self, at: float, name: str, address: str) -> None:
        """Only of Tritons on this machine; nobody else tells it."""
        host, _, rest = address.rpartition("]:") if "]" in address else address.partition(":")
        if not is_here(host) or not rest:
            return
        pid = self._processes.get(name)
        size = None if pid is None else resident(pid)
        if size is None:
            pid = self._processes[name] = triton_on(int(rest.split(":")[0]))
            size = None if pid is None else resident(pid)
        self._add(at, name, "memory", "B", size)

    def _add(self, at: float, replica: str, name: str, unit: str, value: Any) -> None:
        number = None if value is None else float(value)
        self._timeline.add(SeriesName("replica", replica, name, unit), at, number)


# --- what changes while a run goes on -------------------------------------------------------------


class Changes:
    """Compares what is told with what was told before; a difference is a mark."""

    def __init__(self) -> None:
        self._states: dict[str, str] | None = None
        self._avoided: frozenset[str] = frozenset()
        self._revision: int | None = None
        self._marks: list[ObservedEvent] = []

    def __repr__(self) -> str:
        return f"<Changes {len(self._marks)}>"

    @property
    def marks(self) -> tuple[ObservedEvent, ...]:
        """In the order of time."""
        return tuple(sorted(self._marks, key=lambda mark: mark.at))

    def mark(self, at: float, text: str) -> None:
        """Something that somebody else knows of."""
        self._marks.append(ObservedEvent(round(at, 3), text))

    def replicas(self, at: float, page: Iterable[Mapping[str, Any]]) -> None:
        """`/api/replicas`; the first one is what there was."""
        told = {str(one["name"]): one for one in page}
        states = {name: str(one["state"]) for name, one in told.items()}
        if self._states is not None:
            for name in self._states.keys() - states.keys():
                self.mark(at, f"{name} was removed")
            for name, state in states.items():
                if self._states.get(name) != state:
                    why = str(told[name].get("why") or "")
                    self.mark(at, f"{name} is {state}" + (f": {why}" if why else ""))
        self._states = states

    def avoided(self, at: float, names: frozenset[str]) -> None:
        """The replicas that workers avoid."""
        for name in sorted(names - self._avoided):
            self.mark(at, f"the gateway does not call {name}")
        for name in sorted(self._avoided - names):
            self.mark(at, f"the gateway calls {name} again")
        self._avoided = names

    def revisions(self, earliest: float, at: float, zero: float, page: Iterable[Any]) -> None:
        """`/api/history`, the newest first; the first one is what there was.

        `zero` is the Unix time of second 0 by our clock. Theirs may go wrong: a revision that is
        new lies between the look before, `earliest`, and this one.
        """
        told = list(page)
        newest = max((int(one["revision"]) for one in told), default=0)
        if self._revision is not None:
            for one in told:
                if int(one["revision"]) > self._revision:
                    when = datetime.fromisoformat(str(one["at"])).timestamp() - zero
                    self.mark(min(max(when, earliest), at), _sentence(one))
        self._revision = max(newest, self._revision or 0)


def _sentence(one: Mapping[str, Any]) -> str:
    thing = f"{one['kind']} {one['key']}".strip()
    return f"revision {one['revision']}: {thing}: {one['summary']}".rstrip(": ")


# --- the observer ---------------------------------------------------------------------------------


_PERIOD = 1.0
_SELDOM = 2.0


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where a model is served. `admin_url` and `metrics_url` are empty for a bare Triton.

    `metrics_url` is the whole address, `/metrics` included. `key` is shown as a bearer token;
    `admin_key` to `admin_url` instead, where that is another one. `trust`: which certificates are
    believed, None for the system's list.
    """

    http_url: str
    admin_url: str = ""
    metrics_url: str = ""
    key: str = ""
    model: str = ""
    admin_key: str = ""
    trust: ssl.SSLContext | None = field(default=None, compare=False, repr=False)

    @property
    def model_url(self) -> str:
        """Of the model on the data port."""
        return f"{self.http_url.rstrip('/')}/v2/models/{quote(self.model, safe='')}"


class RunObserver:
    """One run's: `begin`, then `watch` until it is cancelled, then `end`."""

    def __init__(
        self,
        target: LoadTarget,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._clock = clock
        self._wall = wall
        self._zero = clock()
        self._questions = Questions(
            target.http_url, target.admin_url, target.metrics_url, trust=target.trust
        )
        self._triton = TritonCounts(target.model)
        self._gateway = GatewayCounts()
        self._changes = Changes()
        self._readings = RunReadings(target.http_url)
        self._hints = HintWatch(target.model)
        self._told: list[str] = []
        self._facts: dict[str, Any] = {}
        self._history_at = 0.0

    def __repr__(self) -> str:
        return f"<RunObserver of {self._target.model} at {self._target.http_url}>"

    async def begin(self) -> None:
        """What there is before the run; never raises for somebody who does not answer."""
        await asyncio.gather(self._ask_facts(), *(ask() for ask, _ in self._rounds()))
        self._readings.forget()
        self._hints.forget()

    async def watch(self, since: float) -> None:
        """Ask until cancelled; `since` is second 0 by the observer's clock."""
        self._zero = since
        async with asyncio.TaskGroup() as tasks:
            for ask, period in self._rounds():
                tasks.create_task(self._every(period, ask))

    def mark(self, at: float, text: str) -> None:
        """Something that the run itself did, at a second of it."""
        self._changes.mark(at, text)

    async def end(self) -> Observed:
        """Ask once more, let go, and tell everything."""
        try:
            await asyncio.gather(*(ask() for ask, _ in self._rounds()))
        finally:
            await self._questions.close()
        requests, mean = self._triton.requests, self._triton.mean_request
        return Observed(
            triton=self._triton.times,
            gateway=self._gateway.times(requests, mean),
            series=(*self._readings.series, *self._hints.series),
            marks=self._changes.marks,
            hints=self._hints.advice,
            problems=(
                *self._questions.problems,
                *self._triton.problems,
                *self._gateway.problems,
                *self._told,
            ),
            facts=self._facts,
        )

    def _rounds(self) -> tuple[tuple[Callable[[], Awaitable[None]], float], ...]:
        target = self._target
        rounds: list[tuple[Callable[[], Awaitable[None]], float]] = [(self._ask_triton, _SELDOM)]
        if target.metrics_url:
            rounds.append((self._ask_metrics, _PERIOD))
        if target.admin_url:
            rounds += [
                (self._ask_replicas, _PERIOD),
                (self._ask_history, _SELDOM),
                (self._ask_hints, _SELDOM),
            ]
        return tuple(rounds)

    async def _every(self, period: float, ask: Callable[[], Awaitable[None]]) -> None:
        due = self._clock()
        while True:
            await ask()
            due = max(due + period, self._clock())
            await asyncio.sleep(due - self._clock())

    @property
    def _now(self) -> float:
        return self._clock() - self._zero

    async def _ask_triton(self) -> None:
        page = await self._questions.json(f"{self._target.model_url}/stats", self._target.key)
        if page is not None:
            self._take("the statistics", lambda: self._triton.add(page))

    async def _ask_metrics(self) -> None:
        text = await self._questions.text(self._target.metrics_url, self._target.key)
        at = self._now
        if text is None or not is_gateways(text):
            self._take("the metrics", lambda: self._readings.triton(at, text))
            return

        def take() -> None:
            reading = gateway_counts.read(text, self._target.model)
            used = self._gateway.add(reading)
            self._changes.avoided(at, reading.avoided)
            self._readings.gateway(at, reading, used)

        self._take("the metrics", take)

    async def _ask_replicas(self) -> None:
        page = await self._ask_admin("/api/replicas")
        at = self._now

        def take() -> None:
            self._readings.replicas(at, page or ())
            if page is not None:
                self._changes.replicas(at, page)
                self._facts["replicas"] = [
                    {key: one[key] for key in ("name", "address", "pool")} for one in page
                ]

        self._take("the list of replicas", take)

    async def _ask_history(self) -> None:
        page = await self._ask_admin("/api/history?limit=50")
        if page is None:
            return
        earliest, self._history_at = self._history_at, self._now
        zero = self._wall() - self._now
        self._take("the history", lambda: self._changes.revisions(earliest, self._now, zero, page))

    async def _ask_hints(self) -> None:
        for path in self._hints.paths:
            page = await self._ask_admin(path)
            if page is not None:
                self._take("the hints", partial(self._hints.add, self._now, page))

    async def _ask_admin(self, path: str) -> Any:
        target = self._target
        url = target.admin_url.rstrip("/") + path
        return await self._questions.json(url, target.admin_key or target.key)

    async def _ask_facts(self) -> None:
        target = self._target
        server, config = await asyncio.gather(
            self._questions.json(f"{target.http_url.rstrip('/')}/v2", target.key),
            self._questions.json(f"{target.model_url}/config", target.key),
        )
        if isinstance(server, Mapping):
            self._facts["server"] = {key: server.get(key) for key in ("name", "version")}
        if isinstance(config, Mapping):
            kept = ("platform", "backend", "max_batch_size", "dynamic_batching", "instance_group")
            self._facts["config"] = {key: config[key] for key in kept if key in config}

    def _take(self, what: str, take: Callable[[], None]) -> None:
        """Take an answer in; one of another shape is a problem, and told once."""
        try:
            take()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            sentence = f"{what} cannot be read: {error!r}"
            if sentence not in self._told:
                self._told.append(sentence)
