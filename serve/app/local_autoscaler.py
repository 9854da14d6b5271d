"""Autoscaling on one machine: as many local Tritons as the hint of their pool says.

    a hint ──▶ too few:  one more is started ──▶ it answers ──▶ the control plane is told of it
           ──▶ too many: the control plane is told ──▶ no calls there ──▶ it is stopped

Each step looks at what is there and does what is left to do, no matter how it came to be so; what
that is, `app/local_autoscaler.py` says.

Wishes: how many local Tritons a hint asks for, and the next step towards that.

Only a hint that is sure takes Tritons away. One that is not may at most ask for more, unless it is
people who allow no more than that.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from serve.capacity.scaling.signals import Code
from serve.core.errors import TritonDidNotStart
from serve.core.replicas import Replica
from serve.processes import ProcessCondition, SupervisedState

# --- wishes ---------------------------------------------------------------------------------------


_ALLOWED = frozenset({Code.MOST.value, Code.BUDGET.value})


@dataclass(frozen=True, slots=True)
class ReplicaWish:
    """How many there should be, and whether that may be fewer than there are. `why`: in words."""

    desired: int
    may_shrink: bool
    lasts: float  # seconds
    why: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "ReplicaWish":
        """Read a hint as the admin API tells it; `ValueError` and its like where it is none."""
        codes = {str(one["code"]) for one in told["reasons"]}
        return cls(
            int(told["desired"]),
            told["confidence"] == "high" or bool(codes & _ALLOWED),
            float(told["lasts"]),
            "; ".join(str(one["text"]) for one in told["reasons"]),
        )

    @property
    def sentence(self) -> str:
        """For people."""
        what = "1 replica" if self.desired == 1 else f"{self.desired} replicas"
        return f"the hint is {what} ({self.why})"


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What is to be done: start so many, take back or give away these, stop those that start."""

    start: int = 0
    take_back: tuple[str, ...] = ()
    give_away: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def plan(
    wish: ReplicaWish,
    *,
    serving: Sequence[str],
    starting: Sequence[str],
    leaving: Sequence[str],
    broken: Collection[str] = (),
) -> ReplicaPlan:
    """The next step. Names in the order in which they were started; `broken` do not run now.

    Those that start go first, then broken ones, then the newest: the others have their caches warm.
    """
    there = len(serving) + len(starting)
    if wish.desired >= there:
        back = tuple(leaving[: wish.desired - there])
        return ReplicaPlan(wish.desired - there - len(back), back)
    if not wish.may_shrink:
        return ReplicaPlan()
    order = [*reversed(starting), *(one for one in serving if one in broken)]
    order += [one for one in reversed(serving) if one not in broken]
    gone = order[: there - wish.desired]
    return ReplicaPlan(
        give_away=tuple(one for one in gone if one in serving),
        stop=tuple(one for one in gone if one in starting),
    )


# --- autoscaling on one machine -------------------------------------------------------------------


POOL = "default"  # that of all local Tritons
PERIOD = 5.0  # seconds until a step is taken that nothing asks for
PAUSE = 1.0  # seconds after the control plane was not reached
WITHIN = 5.0  # seconds in which calls in flight end, before the next look at what is wanted
RETRY = 30.0  # seconds without a start, after one that failed
_log = logging.getLogger("servegate.autoscaling")


class TritonLauncher(Protocol):
    """What starts and stops Tritons: `triton.launcher.Launcher`."""

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All of them."""

    @property
    def answering(self) -> tuple[Replica, ...]:
        """Those that have answered once."""

    @property
    def conditions(self) -> Mapping[str, ProcessCondition]:
        """How each of them is."""

    @property
    def failures(self) -> Mapping[str, TritonDidNotStart]:
        """Why some that have never answered do not start."""

    def add(self) -> str:
        """Start one more."""

    async def remove(self, name: str) -> None:
        """Stop this one."""

    async def news(self) -> None:
        """Return at the next change."""


class AutoscalerControl(Protocol):
    """The control plane: `app.control_line.ControlLine`. What goes wrong is an `OSError`."""

    async def hints(self, after: int) -> tuple[int, list[dict[str, Any]]]:
        """The next round of hints, and its number."""

    async def become(
        self,
        replicas: Collection[Replica],
        starting: Mapping[str, int],
        *,
        leaving: Collection[str],
        within: float,
    ) -> Mapping[str, float | None]:
        """These are the replicas; gives those that still have calls."""


class Autoscaler:
    """Follows the hints for `POOL` while `run` runs. `clock`: monotonic seconds.

    `within`: seconds for a Triton to answer; `patience`: for the calls in flight on one that is
    given away. One that takes longer is stopped.
    """

    def __init__(
        self,
        tritons: TritonLauncher,
        control: AutoscalerControl,
        *,
        say: Callable[[str], None],
        within: float,
        patience: float,
        clock: Callable[[], float],
    ) -> None:
        self._tritons = tritons
        self._control = control
        self._say = say
        self._within = within
        self._patience = patience
        self._clock = clock
        self._wish: tuple[ReplicaWish, float] | None = None  # until when it may be followed
        self._begun: dict[str, float] = {}  # when those that have not answered were started
        self._leaving: dict[str, float] = {}  # since when
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._told: object = None  # what the control plane knows, as far as we know
        self._not_before = clock()  # no start
        self._news = asyncio.Event()

    def __repr__(self) -> str:
        members = [one.name for one in self.members]
        return f"<Autoscaler {members} leaving={sorted(self._leaving)} wish={self._wish}>"

    @property
    def members(self) -> tuple[Replica, ...]:
        """Those that the control plane is told of."""
        away = self._leaving.keys() | self._stopping.keys()
        return tuple(one for one in self._tritons.answering if one.name not in away)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._watch())
            while True:
                self._news.clear()
                await self._step(tasks)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD):
                        await self._news.wait()

    async def _listen(self) -> None:
        """Hear every round of hints."""
        number = 0
        while True:
            try:
                number, hints = await self._control.hints(number)
                mine = [ReplicaWish.of(one) for one in hints if one["pool"] == POOL]
            except (OSError, ValueError, KeyError, TypeError) as error:
                _log.debug("no hints: %s", error or type(error))
                number, self._told = 0, None  # another control plane knows of nothing
                await asyncio.sleep(PAUSE)
                continue
            for wish in mine:
                self._wish = wish, self._clock() + wish.lasts
            self._news.set()

    async def _watch(self) -> None:
        while True:
            await self._tritons.news()
            self._news.set()

    async def _step(self, tasks: asyncio.TaskGroup) -> None:
        self._give_up(tasks)
        serving = [one.name for one in self.members]
        starting = self._starting()
        wish = self._present_wish()
        if wish is not None:
            running = self._tritons.conditions
            broken = [one for one in serving if running[one].state is not SupervisedState.RUNNING]
            todo = plan(
                wish,
                serving=serving,
                starting=starting,
                leaving=self._awaited(),
                broken=broken,
            )
            self._follow(todo, wish, tasks)
        await self._tell(tasks)

    def _give_up(self, tasks: asyncio.TaskGroup) -> None:
        """What does not start is left alone for a while: it may lack memory that others have."""
        now, starting = self._clock(), self._starting()
        self._begun = {name: self._begun.get(name, now) for name in starting}
        for name, begun in self._begun.items():
            failure = self._tritons.failures.get(name)
            if failure is None and now - begun > self._within:
                failure = TritonDidNotStart(name, f"no response within {self._within:g} s", ())
            if failure is not None:
                _log.warning("%s", failure)
                self._not_before = now + RETRY
                self._stop(name, tasks)

    def _follow(self, todo: ReplicaPlan, wish: ReplicaWish, tasks: asyncio.TaskGroup) -> None:
        for name in todo.take_back:
            del self._leaving[name]
            self._say(f"keeping {name}: {wish.sentence}")
        for _ in range(todo.start if self._clock() >= self._not_before else 0):
            name = self._tritons.add()
            self._begun[name] = self._clock()
            self._say(f"starting {name}: {wish.sentence}")
        for name in todo.stop:
            self._say(f"stopping {name}, which is not ready yet: {wish.sentence}")
            self._stop(name, tasks)
        for name in todo.give_away:
            self._say(f"draining {name}: {wish.sentence}")
            self._leaving[name] = self._clock()

    async def _tell(self, tasks: asyncio.TaskGroup) -> None:
        """Tell the control plane what there is, and stop what it has let go of."""
        members, starting, leaving = self.members, {POOL: len(self._starting())}, self._awaited()
        if self._told == (members, starting) and not leaving:
            return
        try:
            busy = await self._control.become(members, starting, leaving=leaving, within=WITHIN)
        except OSError as error:
            _log.debug("cannot report to the control plane: %s", error or type(error))
            self._told = None
            return
        self._told = members, starting
        for name in leaving:
            if name in busy and self._clock() - self._leaving[name] < self._patience:
                self._news.set()  # ask again at once: it waits for the calls
                continue
            if name in busy:
                _log.warning("stopping %s with calls in flight: %s", name, busy[name])
            self._stop(name, tasks)

    def _stop(self, name: str, tasks: asyncio.TaskGroup) -> None:
        self._stopping[name] = tasks.create_task(self._stopped(name))

    async def _stopped(self, name: str) -> None:
        await self._tritons.remove(name)
        self._leaving.pop(name, None)
        del self._stopping[name]
        self._say(f"{name} stopped")
        self._news.set()

    def _awaited(self) -> list[str]:
        """Those whose last calls are waited for."""
        return [one for one in self._leaving if one not in self._stopping]

    def _starting(self) -> list[str]:
        known = {one.name for one in self._tritons.answering} | self._stopping.keys()
        return [one.name for one in self._tritons.replicas if one.name not in known]

    def _present_wish(self) -> ReplicaWish | None:
        """The last one, unless it is too old to be followed."""
        wish, until = self._wish or (None, 0.0)
        return wish if self._clock() <= until else None


@contextlib.asynccontextmanager
async def following(autoscaler: Autoscaler | None) -> AsyncIterator[None]:
    """Inside, there are as many Tritons as the hints say; without one, as many as there are."""
    async with asyncio.TaskGroup() as tasks:
        task = None if autoscaler is None else tasks.create_task(autoscaler.run())
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
