"""Benches: one version in one Triton, for measurements, with fields that change while they go on.

    open ──▶ loaded ──▶ measured over loopback or the replica's own ports ──▶ closed
               ▲ change │
               └────────┘   what does not load is told, and the fields before are loaded again

There is one at a time, since two would measure each other. Whoever opened it asks for it now and
then; a bench that nobody has asked for in 60 s is closed.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.control.batching.bench_places import BenchPlace, Drained, Fields, OpenBench
from serve.control.batching.bench_subjects import BenchSubject, Subjects
from serve.core.errors import Conflict, NotFound, ServegateError, Unavailable
from serve.core.replicas import Replica

_log = logging.getLogger("servegate.benches")
KEPT = 60.0  # seconds that a bench stays without being asked for


@dataclass(frozen=True, slots=True)
class BenchView:
    """A session that can be measured.

    `name` is the model's in Triton. `http`, `grpc` and `metrics` are host:port of that Triton;
    `replica` is empty for a throw-away one. `fields` are those in force, `expires_in` seconds.
    """

    id: str
    model: str
    version: int
    name: str
    http: str
    grpc: str
    metrics: str
    replica: str
    fields: Mapping[str, Any]
    expires_in: float


@dataclass(slots=True)
class _Bench:
    """One bench, from the wish to its end. `ended` tells why it is over."""

    id: str
    subject: BenchSubject
    place: BenchPlace
    replica: str
    fields: Fields
    until: float
    opened: asyncio.Future[Replica]
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    changes: "asyncio.Queue[tuple[Fields, asyncio.Future[None]]]" = field(
        default_factory=asyncio.Queue
    )
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Benches:
    """Opens and closes them. `run` does the work, from the control plane's begin to its end."""

    def __init__(
        self,
        subjects: Subjects,
        throw_away: BenchPlace,
        drained: Drained,
        *,
        clock: Callable[[], float],
        kept: float = KEPT,
    ) -> None:
        self._subjects = subjects
        self._throw_away = throw_away
        self._drained = drained
        self._clock = clock
        self._kept = kept
        self._asked: asyncio.Queue[_Bench] = asyncio.Queue()
        self._bench: _Bench | None = None
        self._ended = ("", "")  # the last bench and why it ended

    def __repr__(self) -> str:
        return f"<Benches {self._bench.id if self._bench else 'none'}>"

    async def run(self) -> None:
        """Hold one bench after the other, until cancelled; what is open then is closed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._drained.reclaim())
            while True:
                await self._hold(await self._asked.get())

    async def _hold(self, bench: _Bench) -> None:
        why = "it was closed"
        try:
            async with bench.place.open(bench.subject, bench.fields) as opened:
                bench.until = self._clock() + self._kept
                if not bench.opened.done():
                    bench.opened.set_result(opened.replica)
                why = await self._serve(bench, opened)
        except ServegateError as error:
            why = str(error)
            if not bench.opened.done():
                bench.opened.set_exception(error)
        except Exception as error:  # a full disk, say: no reason for the others to end
            _log.exception("a bench of %s failed", bench.subject.model)
            why = f"it failed: {error}"
        finally:
            self._end(bench, why)

    async def open(self, model: str, number: int, fields: Fields, replica: str = "") -> BenchView:
        """Begin one, and wait until it can be measured.

        `Conflict` while there is another one; else what is wrong with the version or the fields.
        """
        subject = self._subjects.find(model, number)
        place = self._drained.on(replica) if replica else self._throw_away
        if self._bench is not None:
            other = self._bench
            raise Conflict(
                "another bench is open",
                why=f"bench '{other.id}' measures model '{other.subject.model}', and two would "
                "disturb each other",
                try_this=f"wait until it ends, or send DELETE /api/benches/{other.id}",
            )
        identity = secrets.token_hex(6)
        opened: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
        bench = _Bench(identity, subject, place, replica, fields, float("inf"), opened)
        self._bench = bench
        self._asked.put_nowait(bench)
        try:
            await asyncio.shield(opened)
        except asyncio.CancelledError:
            bench.closed.set()  # nobody waits for it any more
            raise
        return self._view(bench)

    def keep(self, identity: str) -> BenchView:
        """It is still wanted; `NotFound` says why there is none."""
        bench = self._find(identity)
        bench.until = self._clock() + self._kept
        return self._view(bench)

    async def change(self, identity: str, fields: Fields) -> BenchView:
        """Load it with these fields. After an error those before are in force again."""
        bench = self._find(identity)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bench.changes.put_nowait((fields, done))
        gone = asyncio.ensure_future(bench.gone.wait())
        try:
            await asyncio.wait((done, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not done.done():
            raise self._missing(identity)
        done.result()
        return self._view(bench)

    async def close(self, identity: str) -> None:
        """End it, and wait until everything is as it was before."""
        bench = self._find(identity)
        bench.closed.set()
        await bench.gone.wait()

    async def _serve(self, bench: _Bench, opened: OpenBench) -> str:
        """Change it as people wish, until it is over; why it is."""
        over = asyncio.ensure_future(opened.is_over())
        closed = asyncio.ensure_future(bench.closed.wait())
        wish = asyncio.ensure_future(bench.changes.get())
        try:
            while True:
                left = bench.until - self._clock()
                if left <= 0:
                    return f"no client used it for {self._kept:g} s"
                await asyncio.wait(
                    (over, closed, wish), timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if over.done():
                    raise Unavailable("the bench ended", why=over.result())
                if closed.done():
                    return "it was closed"
                if wish.done():
                    await self._change(bench, opened, *wish.result())
                    wish = asyncio.ensure_future(bench.changes.get())
        finally:
            for task in (over, closed, wish):
                task.cancel()

    async def _change(
        self, bench: _Bench, opened: OpenBench, fields: Fields, done: asyncio.Future[None]
    ) -> None:
        try:
            await opened.load(fields)
        except ServegateError as error:
            try:
                await opened.load(bench.fields)
            except ServegateError:
                done.set_exception(error)
                raise
            done.set_exception(error)
        else:
            bench.fields = MappingProxyType(dict(fields))
            done.set_result(None)
        finally:
            bench.until = self._clock() + self._kept

    def _end(self, bench: _Bench, why: str) -> None:
        self._ended = (bench.id, why)
        self._bench = None
        bench.gone.set()
        if not bench.opened.done():
            bench.opened.set_exception(Unavailable("the bench ended", why=why))
        with contextlib.suppress(asyncio.CancelledError, ServegateError):
            bench.opened.exception()  # which perhaps nobody has waited for

    def _find(self, identity: str) -> _Bench:
        bench = self._bench
        if bench is None or bench.id != identity or not bench.opened.done():
            raise self._missing(identity)
        return bench

    def _missing(self, identity: str) -> NotFound:
        last, why = self._ended
        return NotFound(f"there is no bench '{identity}'", why=why if last == identity else "")

    def _view(self, bench: _Bench) -> BenchView:
        replica = bench.opened.result()
        return BenchView(
            bench.id,
            bench.subject.model,
            bench.subject.number,
            bench.subject.name,
            http=f"{replica.host}:{replica.http_port}",
            grpc=f"{replica.host}:{replica.grpc_port}",
            metrics=f"{replica.host}:{replica.metrics_port}",
            replica=bench.replica,
            fields=dict(bench.fields),
            expires_in=max(0.0, bench.until - self._clock()),
        )
