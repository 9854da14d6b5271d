"""Snapshots: compiled from what exists, what is decided and what the replicas hold; then published.

`compile_models` is a plain function. The `Publisher` gives a changed snapshot the next generation,
wakes the workers' long polls, and knows from their acknowledgements when a generation is in force
everywhere.

News may come by the thousand, when a whole fleet loads. What comes while one snapshot is compiled
is in the next; before that the publisher rests, so that the workers have time for calls.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.registry import Loadable, Model
from serve.control.storage.store import Store
from serve.core.access import ApiKey
from serve.core.errors import Unavailable
from serve.core.routes import Route, Split
from serve.core.snapshot import ComparedOutputs, ModelView, Snapshot, VersionTarget
from serve.triton.foreign_code import calls_others

GONE_AFTER = 10.0  # seconds without a poll after which a worker is not waited for
REST = 3.0  # times as long as the last snapshot took: to be compiled, written and given out
POLL = 0.002  # seconds that it takes to give it to one worker


def _never(pool: str) -> bool:
    return False


def compile_snapshot(
    models: Mapping[str, Model],
    decisions: Decisions,
    fleet: Fleet,
    own: ApiKey | None = None,
    *,
    may_sleep: Callable[[str], bool] = _never,
) -> Snapshot:
    """Everything that the data plane has to know, not yet published: its generation is 0.

    `own` is the control plane's key for the data plane, by which it calls models for people.
    `may_sleep` says whether a pool may have no replica.
    """
    keys = decisions.keys() | ({own.id: own} if own else {})
    return Snapshot(
        0,
        compile_models(models, decisions, fleet, may_sleep),
        fleet.staying,
        MappingProxyType(keys),
        decisions.guarded,
    )


def compile_models(
    models: Mapping[str, Model],
    decisions: Decisions,
    fleet: Fleet,
    may_sleep: Callable[[str], bool] = _never,
) -> Mapping[str, ModelView]:
    """The data plane's view of every model that can be served at all."""
    failed = {name for _, name in fleet.failures}
    return MappingProxyType(
        {
            name: _view(model, decisions, fleet, may_sleep, failed)
            for name, model in sorted(models.items())
            if model.loadables and not model.problem and not model.unloaded
        }
    )


def _view(
    model: Model,
    decisions: Decisions,
    fleet: Fleet,
    may_sleep: Callable[[str], bool],
    failing: Collection[str],
) -> ModelView:
    pools = decisions.pools(model.name)
    sequences = any(
        one.configuration and one.configuration.batches_sequences for one in model.loadables
    )
    targets, wanted = {}, set()
    for one in model.loadables:
        flavour = one.configuration.flavour if one.configuration else "auto"
        inside = calls_others(one.configuration)
        for version in _served(one, fleet):
            wanted.add(version)
            holders = fleet.holders(one.name, version, *pools, steers=not sequences)
            if holders:
                targets[version] = VersionTarget(
                    model.name, version, one.name, version, flavour, holders, inside
                )
    failed = any(one.name in failing for one in model.loadables)
    is_whole = failed or wanted <= targets.keys()
    asleep = not is_whole and any(map(may_sleep, pools)) and _is_asleep(pools, fleet)
    served = wanted if asleep else targets  # the newest is waited for
    chosen = decisions.route(model.name)
    newest = Route(Split.of({max(served): 100})) if served else None
    return ModelView(
        name=model.name,
        targets=MappingProxyType(dict(sorted(targets.items()))),
        labels=MappingProxyType(decisions.labels(model.name)),
        route=chosen or newest,
        routed=chosen is not None,
        sequences=bool(sequences),
        failed=failed,
        asleep=asleep,
        compared=_compared(model, decisions, chosen),
    )


def _compared(model: Model, decisions: Decisions, route: Route | None) -> ComparedOutputs | None:
    """As the candidate declares its outputs: in its record, or else in its folder."""
    if route is None or route.mirror is None:
        return None
    one = model.holding(route.mirror.version)
    if one is None:
        return None
    is_batched = one.configuration is not None and one.configuration.message.max_batch_size > 0
    record = decisions.versions.get(model.name, {}).get(route.mirror.version)
    if record is not None:
        return ComparedOutputs(record.output_kinds, tuple(record.output_labels), is_batched)
    return ComparedOutputs(one.output_kinds, tuple(one.labels), is_batched)


def _is_asleep(pools: tuple[str, ...], fleet: Fleet) -> bool:
    """Whether no replica of these pools has by now all that it can have."""
    return not any(
        fleet.is_present(name) and name not in fleet.joining for name in fleet.in_pool(*pools)
    )


def _served(one: Loadable, fleet: Fleet) -> tuple[int, ...]:
    """The versions that may be called; where Triton chose, whatever it holds counts."""
    if one.problem or one.unloaded:
        return ()
    if one.configuration is not None:
        return one.wanted
    return fleet.holding.versions(one.name)


@dataclass(slots=True)
class WorkerStatus:
    """One data-plane worker: the generation it serves, and how many of its polls wait now."""

    name: str
    generation: int
    seen: float = 0.0  # monotonic seconds
    polls: int = 0


class Publisher:
    """The present snapshot, the workers that serve it, and those who wait for either."""

    def __init__(
        self,
        build: Callable[[], Snapshot],
        store: Store,
        *,
        clock: Callable[[], float],
        knows: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._build = build
        self._store = store
        self._clock = clock
        self._knows = knows
        self._sleep = sleep
        self._snapshot = Snapshot(0)
        self._changed = asyncio.Condition()
        self._written: bytes | None = None  # the snapshot in the form in which it travels
        self._refreshing = asyncio.Lock()
        self._asked = self._covered = 0  # refreshes, and those of them that are in the snapshot
        self._rests_until = 0.0
        self._workers: dict[str, WorkerStatus] = {}
        self._ahead = 0  # the highest generation of a worker that this process did not give out
        self._closed = False

    def __repr__(self) -> str:
        return f"<Publisher generation={self._snapshot.generation} workers={len(self._workers)}>"

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that was published last."""
        return self._snapshot

    @property
    def written(self) -> bytes:
        """The same in the form in which it travels; written once for all workers."""
        if self._written is None:
            begun = self._clock()
            self._written = json.dumps(self._snapshot.to_json(), separators=(",", ":")).encode()
            self._rest(begun)
        return self._written

    @property
    def workers(self) -> tuple[WorkerStatus, ...]:
        """The workers that have polled lately, by name."""
        now = self._clock()
        return tuple(
            worker
            for _, worker in sorted(self._workers.items())
            if worker.polls or now - worker.seen < GONE_AFTER
        )

    async def refresh(self) -> int:
        """Publish what is known by now, if that is news; gives the generation that holds it.

        All who ask while one is compiled share the next. Nothing is published before `knows` says
        that the replicas have been looked at: what the workers hold is better than a guess.
        """
        self._asked += 1
        mine = self._asked
        async with self._refreshing:
            if self._covered >= mine:
                return self._snapshot.generation
            while (left := self._rests_until - self._clock()) > 0:
                await self._sleep(left)
            if not self._knows():
                return self._snapshot.generation
            asked = self._asked
            await self._compile()
            self._covered = asked
            return self._snapshot.generation

    async def settled(self) -> None:
        """Wait until all that was to be published by now is, as far as anything may be."""
        async with self._refreshing:  # whose waiters are served in their order
            pass

    async def _compile(self) -> None:
        begun = self._clock()
        built = self._build()
        self._rest(begun - POLL * len(self._workers))
        present = self._snapshot.generation
        if built.same_content(self._snapshot) and present > self._ahead:
            return
        following = max(present, self._ahead) + 1
        try:
            generation = await self._store.next_generation(following)
        except Unavailable:
            generation = following  # still rising; the store catches up with the next change
        self._snapshot = dataclasses.replace(built, generation=generation)
        self._written = None
        await self._notify()

    def _rest(self, begun: float) -> None:
        """Work that has been done since `begun`: the next snapshot waits for a multiple of it."""
        now = self._clock()
        self._rests_until = max(self._rests_until, now) + REST * (now - begun)

    async def committed(self) -> int:
        """Publish what is decided; the generation from which on it holds, published or yet to be.

        While nothing may be published the number is reserved, so that nobody takes an older
        generation that is in force for the one that holds the change.
        """
        generation = await self.refresh()
        if self._knows():
            return generation
        try:
            reserved = await self._store.next_generation(max(generation, self._ahead) + 1)
        except Unavailable:
            reserved = max(generation, self._ahead) + 1
        self._ahead = max(self._ahead, reserved - 1)
        return await self.refresh() if self._knows() else reserved

    async def poll(self, worker: str, after: int, within: float) -> Snapshot | None:
        """A worker serves generation `after`: wait for a newer one; None when the time is up.

        Cancel it when the worker's connection is gone: it is forgotten then, unless it polls again.
        """
        entry = self._workers.setdefault(worker, WorkerStatus(worker, after))
        entry.generation = after
        entry.polls += 1
        try:
            await self._notify()
            if after > self._snapshot.generation:
                # It was served by a control plane whose store is gone: overtake its generation.
                self._ahead = max(self._ahead, after)
                await self.refresh()
            await self._wait(lambda: self._snapshot.generation > after, within)
        except asyncio.CancelledError:
            if entry.polls == 1:
                self._workers.pop(worker, None)
            raise
        finally:
            entry.polls -= 1
            entry.seen = self._clock()
        return self._snapshot if self._snapshot.generation > after else None

    async def close(self) -> None:
        """Send every waiting worker home: this control plane is about to end."""
        self._closed = True
        await self._notify()

    async def in_force(self, generation: int, within: float) -> bool:
        """Wait until every worker serves this generation or a newer one; whether they do."""
        return await self._wait(
            lambda: (
                self._snapshot.generation >= generation
                and all(worker.generation >= generation for worker in self.workers)
            ),
            within,
        )

    async def _wait(self, reached: Callable[[], bool], within: float) -> bool:
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._changed.wait_for(lambda: self._closed or reached())
            return reached()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
