"""Membership: how replicas come, how they go without a call that is lost, and what is left."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from builders import ControlPlane, replica, until, write_model

from serve.control.membership import Membership
from serve.control.reconciliation.keepers import Keepers
from serve.control.reconciliation.reconciler import ReplicaKeeper
from serve.core.replicas import Replica

from .keeping import FakeDelivery, FakeProof, FakeTriton, keeper_of

PATIENCE = 20.0  # seconds; a bound


class Scene:
    """Replicas a and b with fake Tritons; `counts` are the calls in flight that the gateway tells.

    Each look at them is remembered in `looks`, with who may be called then.
    """

    def __init__(self, folder: Path, *names: str, discovers: bool = False) -> None:
        replicas = [replica(name) for name in names]
        self.plane = ControlPlane(folder, replicas=replicas, discovers=discovers)
        write_model(self.plane.repository)
        self.tritons: dict[str, FakeTriton] = {}
        self.counts: list[Mapping[str, float] | None] = []
        self.looks: list[tuple[str, ...]] = []
        self.rounds = 0
        self.keepers = Keepers()
        self.keepers.after_rounds(self._round)
        self.membership = Membership(
            self.plane.fleet,
            self.keepers,
            self.plane.publisher,
            keep=self._keep,
            busy=self._busy,
            clock=self.plane.clock,
        )

    def _round(self) -> None:
        self.rounds += 1

    def _keep(self, one: Replica) -> ReplicaKeeper:
        triton = self.tritons[one.name] = FakeTriton()
        return keeper_of(self.plane, one.name, triton, FakeDelivery(), FakeProof(), 0.01)

    async def _busy(self) -> Mapping[str, float] | None:
        self.looks.append(self.called)
        self.plane.clock.now += 1
        return self.counts.pop(0) if self.counts else {}

    @property
    def called(self) -> tuple[str, ...]:
        """Who may be called for model m."""
        models = self.plane.publisher.snapshot.models
        target = models["m"].targets.get(2) if "m" in models else None
        return target.replicas if target else ()

    async def serves(self, *names: str) -> None:
        """Wait until just these may be called."""
        await until(lambda: self.called == names, within=PATIENCE)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        """All hold the model, and the membership runs."""
        await self.plane.reload()
        await self.plane.inventory.scan()
        running = asyncio.create_task(self.membership.run())
        try:
            async with asyncio.timeout(PATIENCE):
                await until(lambda: self.called == tuple(sorted(self.tritons)), within=PATIENCE)
                yield self
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def become(self, *names: str, starting: int = 0) -> Mapping[str, float | None]:
        members = [replica(name) for name in names]
        return await self.membership.become(members, {"default": starting}, within=3.0)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """Replicas a and b, in a membership that runs."""
    async with Scene(tmp_path, "a", "b").running() as scene:
        yield scene


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[Scene]:
    """Replica a alone."""
    async with Scene(tmp_path, "a").running() as scene:
        yield scene


async def test_one_that_joins_is_loaded_and_then_called(scene: Scene) -> None:
    assert await scene.become("a", "b", "c") == {}
    assert len(scene.keepers) == 3
    await scene.serves("a", "b", "c")
    assert scene.tritons["c"].asked == ["load m"]


async def test_one_that_leaves_gets_no_calls_while_its_last_ones_end_and_then_it_is_gone(
    scene: Scene,
) -> None:
    scene.counts = [{"a": 3, "b": 2}, {"a": 4, "b": 1}, {"a": 4}]
    gone: list[Replica] = []

    async def note(one: Replica) -> None:
        gone.append(one)

    scene.membership.after_leaving(note)
    assert await scene.become("a") == {}
    assert gone == [replica("b")]
    assert scene.looks == [("a",)] * 3
    assert "b" not in scene.plane.fleet.observations
    assert list(scene.plane.publisher.snapshot.replicas) == ["a"]
    assert "b" not in scene.keepers and scene.tritons["b"].closed


class Leaving:
    """b leaves a scene, and has calls that do not end before `ends` is called."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        scene.counts = [{"b": 2}] * 1000
        told = scene.membership.become([replica("a")], within=10_000.0)
        self.told = asyncio.ensure_future(told)

    async def begun(self) -> None:
        await until(lambda: bool(self._scene.looks), within=PATIENCE)

    async def ends(self) -> Mapping[str, float | None]:
        assert not self.told.done()
        self._scene.counts.clear()
        return await self.told


async def test_one_joins_while_another_has_not_left_yet(scene: Scene) -> None:
    leaving = Leaving(scene)
    await leaving.begun()
    assert await scene.become("a", "c") == {"b": 2}
    await scene.serves("a", "c")
    assert await leaving.ends() == {}
    assert sorted(scene.plane.fleet.observations) == ["a", "c"]


async def test_one_that_is_told_again_while_it_leaves_is_not_said_to_be_gone(scene: Scene) -> None:
    leaving = Leaving(scene)
    await leaving.begun()
    assert await scene.become("a", "b") == {}
    assert await leaving.ends() == {"b": 0}
    assert sorted(scene.plane.fleet.observations) == ["a", "b"]
    await scene.serves("a", "b")


async def test_one_with_calls_that_do_not_end_is_told_and_may_stay_after_all(scene: Scene) -> None:
    scene.counts = [{"b": 2}] * 10
    assert await scene.become("a") == {"b": 2}
    assert scene.called == ("a",)
    assert await scene.become("a", "b") == {}
    assert scene.called == ("a", "b")
    assert not scene.tritons["b"].closed


async def test_where_nobody_tells_what_is_in_flight_one_that_answers_is_not_let_go(
    scene: Scene,
) -> None:
    scene.counts = [None] * 20
    assert await scene.become("a") == {"b": None}
    scene.tritons["b"].is_up = False
    await until(lambda: not scene.plane.fleet.observations["b"].is_up, within=PATIENCE)
    assert await scene.become("a") == {}


async def test_a_control_plane_that_starts_anew_asks_for_those_that_it_does_not_know(
    single: Scene,
) -> None:
    single.counts = [{"b": 1}] * 3 + [{"b": 2}, None, {}]
    members = [replica("a")]
    become = single.membership.become
    assert await become(members, leaving=["b", "a"], within=3.0) == {"b": 1}
    assert await become(members, leaving=["b"], within=2.0) == {"b": None}
    assert await become(members, leaving=["b"], within=2.0) == {}
    assert single.called == ("a",)


async def test_nobody_is_let_go_before_anything_may_be_published(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    await scene.plane.reload()
    assert await scene.membership.become([replica("a")], within=0.01) == {"b": None}
    assert scene.looks == []


async def test_the_last_one_may_leave_and_another_come(single: Scene) -> None:
    assert await single.become(starting=1) == {}
    snapshot = single.plane.publisher.snapshot
    assert (list(snapshot.models), list(snapshot.replicas)) == (["m"], [])
    assert single.membership.wished == {"default": 1}
    single.plane.clock.now += 30
    await single.become("b")
    await single.serves("b")
    assert single.membership.wished == {}
    before = single.rounds  # who listens hears of the rounds of those who come later
    single.keepers.wake()
    await until(lambda: single.rounds > before, within=PATIENCE)


async def test_a_replica_that_joins_was_wished_for_when_its_start_was_told(scene: Scene) -> None:
    clock = scene.plane.clock
    begun = clock.now = 2000.0
    for after, names, starting in ((0, "ab", 1), (10, "ab", 2), (25, "abc", 1), (26, "abcd", 0)):
        clock.now = begun + after
        await scene.become(*names, starting=starting)
    seen = scene.plane.fleet.observations
    assert (seen["c"].wished_at, seen["c"].joined_at) == (begun, begun + 25)
    assert (seen["d"].wished_at, seen["d"].joined_at) == (begun + 10, begun + 26)
    assert seen["a"].joined_at is None


async def test_one_that_has_another_address_is_another_replica(scene: Scene) -> None:
    old, moved = scene.tritons["b"], replica("b", http=9000)
    assert await scene.membership.become([replica("a"), moved]) == {}
    assert scene.plane.fleet.observations["b"].replica == moved
    assert old.closed and scene.tritons["b"] is not old
    await scene.serves("a", "b")


async def test_whoever_measures_on_one_that_leaves_is_waited_for(scene: Scene) -> None:
    await scene.become("a", "b", "c")
    await scene.serves("a", "b", "c")
    lending = scene.keepers.lending("b")
    assert lending is not None
    measuring = asyncio.Event()

    async def measure() -> None:
        async with lending.lent("m"):
            measuring.set()
            await until(lambda: scene.plane.fleet.is_retired("b"), within=PATIENCE)

    bench = asyncio.create_task(measure())
    await measuring.wait()
    scene.tritons["b"].asked.clear()
    assert await scene.become("a", "c") == {}
    await bench
    assert scene.tritons["b"].asked == []  # nothing is put back where nobody calls
