"""Places of benches: a throw-away Triton, or a replica that is steered around.

| place               | what is loaded there                              | in the end            |
|---------------------|---------------------------------------------------|-----------------------|
| a throw-away Triton | the version, and what it is made of; nothing else | it is killed          |
| a replica           | the versions under this name that it holds, anew  | they are loaded again |
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from serve.control.artifacts.contents import scratch
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.batching.bench_subjects import BenchSubject
from serve.control.fleet import Fleet
from serve.control.publication.trials import lay_out, orders_of
from serve.control.reconciliation.loans import Lending
from serve.core.errors import Invalid, LoadFailed, NotFound, TritonFailed, Unavailable
from serve.core.flavours import BASE, Machine
from serve.core.replicas import Replica
from serve.triton.config import Configuration
from serve.triton.control import TritonControl
from serve.triton.quarantine import Quarantine

Fields = Mapping[str, Any]
_QUICK = 5.0  # seconds
_LOOK = 0.5  # seconds between two looks at a replica
_LOADING = 300.0  # seconds for a load


@dataclass(frozen=True, slots=True)
class OpenBench:
    """A Triton that has loaded the subject.

    `load` loads it with other fields and raises why it cannot; `is_over` returns why there is
    nothing to measure any more.
    """

    replica: Replica
    load: Callable[[Fields], Awaitable[None]]
    is_over: Callable[[], Awaitable[str]]


class BenchPlace(Protocol):
    """Where something is measured."""

    def open(
        self, subject: BenchSubject, fields: Fields
    ) -> contextlib.AbstractAsyncContextManager[OpenBench]:
        """Load it there; at the end everything is as before."""
        ...


class ThrowAway:
    """A Triton of its own, on this machine. `folder`: for repositories; `plain`: the plain one."""

    def __init__(
        self,
        quarantine: Quarantine | None,
        storage: ArtifactStorage,
        *,
        folder: Path,
        plain: Path | None,
        machine: Machine,
    ) -> None:
        self._quarantine = quarantine
        self._storage = storage
        self._folder = folder
        self._plain = plain
        self._machine = machine

    def __repr__(self) -> str:
        return f"<ThrowAway {self._quarantine or 'without a Triton'}>"

    @contextlib.asynccontextmanager
    async def open(self, subject: BenchSubject, fields: Fields) -> AsyncIterator[OpenBench]:
        """Start it; `TrialFailed` says what is wrong with the version or the fields."""
        if self._quarantine is None:
            raise Invalid(
                "there is no Triton for measurements",
                why="the control plane cannot start one on its machine",
                try_this="pass --replica NAME to measure on a replica taken out of rotation",
            )
        form = subject.form(self._machine)
        last = subject.configured(fields, form, self._machine)
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        async with scratch(self._folder) as repository:
            await lay_out(repository, (*subject.parts, last), self._storage, self._plain)
            orders = orders_of(subject.parts, last)
            async with self._quarantine.trial(repository, orders) as trial:

                async def load(changed: Fields) -> None:
                    await trial.again(
                        orders_of((), subject.configured(changed, form, self._machine))
                    )

                async def is_over() -> str:
                    await trial.is_over()
                    return "its Triton died or used too much memory"

                yield OpenBench(trial.replica, load, is_over)


class Drained:
    """Replicas that calls are steered around meanwhile. `machine` is what each runs on.

    `lending` lends one, or is None for a name that no replica has.
    """

    def __init__(
        self,
        lending: Callable[[str], Lending | None],
        fleet: Fleet,
        *,
        machine: Callable[[Replica], Machine],
        loads: Callable[[], bool],
        notes: "Notes",
    ) -> None:
        self._lending = lending
        self._fleet = fleet
        self._machine = machine
        self._loads = loads
        self._notes = notes

    def __repr__(self) -> str:
        return f"<Drained {self._fleet!r}>"

    async def reclaim(self) -> None:
        """Take back what an earlier control plane has lent and died over; return when it is."""
        noted = [(one, self._lending(one), name) for one, name in self._notes.read()]
        lent = [(one, lending, name) for one, lending, name in noted if lending is not None]
        for _, lending, model in lent:
            lending.reclaim(model)
        while not all(  # noqa: ASYNC110
            self._fleet.is_retired(one) or lending.is_back(model) for one, lending, model in lent
        ):
            await asyncio.sleep(_LOOK)
        if lent:
            self._notes.clear()

    def on(self, replica: str) -> BenchPlace:
        """This replica as a place; `NotFound` when there is none of this name."""
        if self._lending(replica) is None:
            known = ", ".join(sorted(self._fleet.staying))
            raise NotFound(f"there is no replica '{replica}'", why=f"the replicas are {known}")
        return _Replica(self, replica)

    @contextlib.asynccontextmanager
    async def open(
        self, name: str, subject: BenchSubject, fields: Fields
    ) -> AsyncIterator[OpenBench]:
        """See `Place.open`."""
        held, lending = self._held(name, subject), self._lending(name)
        assert lending is not None, "what holds something has a keeper"
        replica = self._fleet.observations[name].replica
        machine = self._machine(replica)
        chosen = self._fleet.flavours.get((name, subject.name)) or BASE
        known = {one.name: one for one in subject.flavours.candidates}
        form = known.get(chosen) or subject.form(machine)
        control = TritonControl(replica, timeout=_QUICK)

        async def load(changed: Fields) -> None:
            config = subject.configured(changed, form, machine).configuration
            await _load(control, subject.name, config, held)

        async def is_over() -> str:
            while True:
                if self._fleet.is_retired(name):
                    return f"replica {name} is being removed"
                seen = self._fleet.observations[name]
                if not seen.is_up:
                    return f"replica {name} does not answer: {seen.why}"
                if subject.number not in seen.held.get(subject.name, ()):
                    return f"replica {name} no longer has the version"
                await asyncio.sleep(_LOOK)

        try:
            async with lending.lent(subject.name):
                self._notes.add(name, subject.name)
                await load(fields)
                yield OpenBench(replica, load, is_over)
            if lending.is_back(subject.name):
                self._notes.clear()
        finally:
            await control.close()

    def _held(self, name: str, subject: BenchSubject) -> tuple[int, ...]:
        """The versions under the subject's name there; `Invalid` where it cannot be lent."""
        seen = self._fleet.observations.get(name)
        if seen is None or self._fleet.is_retired(name):
            raise Invalid(f"replica {name} cannot run measurements", why="it is being removed")
        held = seen.held.get(subject.name, ())
        why = ""
        if not seen.is_up:
            why = f"it does not answer: {seen.why}"
        elif seen.self_managed or not self._loads():
            why = "this gateway does not load models there"
        elif subject.number not in held:
            why = f"it does not have version {subject.number} of model '{subject.model}'"
        if why:
            raise Invalid(f"replica {name} cannot run measurements", why=why)
        return held


@dataclass(frozen=True, slots=True)
class _Replica:
    drained: Drained
    name: str

    def open(
        self, subject: BenchSubject, fields: Fields
    ) -> contextlib.AbstractAsyncContextManager[OpenBench]:
        return self.drained.open(self.name, subject, fields)


class Notes:
    """A file that says what is lent, for whoever comes after a control plane that died."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"<Notes {self._path}>"

    def add(self, replica: str, model: str) -> None:
        """This name in Triton is not on this replica as it should be."""
        draft = self._path.with_suffix(".new")
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(
            "".join(f"{one}\t{name}\n" for one, name in (*self.read(), (replica, model)))
        )
        draft.replace(self._path)

    def read(self) -> tuple[tuple[str, str], ...]:
        """Replicas and names in Triton."""
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return ()
        pairs = (line.partition("\t") for line in lines)
        return tuple((replica, model) for replica, tab, model in pairs if tab)

    def clear(self) -> None:
        """Everything is as it should be."""
        self._path.unlink(missing_ok=True)


async def _load(
    control: TritonControl, name: str, config: Configuration | None, held: tuple[int, ...]
) -> None:
    try:
        async with asyncio.timeout(_LOADING):
            await control.load(name, config.for_load(held) if config else None)
    except TritonFailed as error:
        raise LoadFailed(name, str(error)) from error
    except TimeoutError:
        raise Unavailable(f"the model was still loading after {_LOADING:g} s") from None
