"""Discovering: whom the sources name, whom of them the control plane believes, and what it says."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import replica, until

from serve.control.discovered import NOBODY, DiscoveredMembers, merged
from serve.control.discovery import Discovering, SourceStatus
from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Endpoint, Listing
from serve.triton.discovery.source import Listener

from .test_membership import PATIENCE, Scene

# --- the decision --------------------------------------------------------------------------------


def at(name: str, *, pool: str = "default", host: str = "", ends: bool = False) -> Endpoint:
    """An endpoint; each name has an address of its own unless one is given."""
    host = host or f"host-{name}"
    return Endpoint(Replica(name, host, 1, 2, 3, pool), is_terminating=ends)


def members(
    before: DiscoveredMembers = NOBODY,
    *,
    static: tuple[Replica, ...] = (),
    ended: tuple[str, ...] = (),
    answering: tuple[str, ...] = (),
    now: float = 100.0,
    **told: list[Endpoint],
) -> DiscoveredMembers:
    return merged(
        static, told, before=before, ended=ended, answers=lambda name: name in answering, now=now
    )


def test_all_that_any_source_names_are_members_and_so_are_those_of_the_start() -> None:
    found = members(static=(replica("s"),), k=[at("a"), at("b")], d=[at("c")])
    sources = {name: one.source for name, one in found.by_name.items()}
    assert list(sources.items()) == [("s", "--triton"), ("a", "k"), ("b", "k"), ("c", "d")]


def test_one_that_is_not_ready_is_a_member_and_one_that_is_terminating_is_none() -> None:
    loading = replace(at("a"), is_ready=False, is_serving=False)
    assert list(members(k=[loading, at("b", ends=True)]).by_name) == ["a"]
    # neither by another source, unless another has its address
    listed = {"k": [at("a", host="h", ends=True)], "d": [at("default-h", host="h")]}
    assert list(members(**listed).by_name) == []
    both = [at("a", host="h", ends=True), at("b", host="h")]
    assert list(members(k=both).by_name) == ["b"]


def test_a_single_one_that_vanished_is_believed_to_be_gone_after_a_moment() -> None:
    before = members(k=[at("a"), at("b"), at("c")])
    everybody = ("a", "b", "c")
    now = members(before, answering=everybody, k=[at("a")])
    assert (sorted(now.by_name), now.missing) == (["a", "b", "c"], {"b": 100.0, "c": 100.0})
    back = members(now, answering=everybody, now=101.9, k=[at("a"), at("b")])
    assert (sorted(back.by_name), back.missing) == (["a", "b", "c"], {"c": 100.0})
    later = members(back, answering=everybody, now=102.0, k=[at("a"), at("b")])
    assert (list(later.by_name), later.missing, later.kept) == (["a", "b"], {}, {})


def test_a_pool_that_vanishes_slice_by_slice_has_vanished_at_once() -> None:
    before = members(k=[at("a"), at("b")])
    half = members(before, answering=("a", "b"), k=[at("b")])
    none = members(half, answering=("a", "b"), now=100.1, k=[])
    assert none.kept == {("k", "default"): ("b", "a")}
    later = members(none, answering=("a", "b"), now=500.0, k=[])
    assert sorted(later.by_name) == ["a", "b"]
    first = members(later, answering=("a", "b"), now=500.1, k=[at("a")])  # they come back, too
    assert sorted(first.by_name) == ["a", "b"]
    assert list(members(first, answering=("b",), now=502.2, k=[at("a")]).by_name) == ["a"]


def test_a_pool_that_vanishes_at_once_is_kept_while_one_of_it_answers() -> None:
    before = members(k=[at("a"), at("b"), at("x", pool="other")])
    now = members(before, answering=("b",), k=[at("x", pool="other")])
    assert sorted(now.by_name) == ["a", "b", "x"]
    assert now.kept == {("k", "default"): ("a", "b")}
    later = members(now, answering=("b",), k=[at("x", pool="other")])
    assert later.kept == now.kept
    assert list(members(later, k=[at("x", pool="other")]).by_name) == ["x"]


ALONE, PAIR = members(k=[at("a")]), members(k=[at("a"), at("b")])


@pytest.mark.parametrize(
    ("before", "ended", "listed", "names"),
    [
        (ALONE, (), [], ["a"]),  # a pool of one is a pool
        (PAIR, ("a",), [], []),  # one of it was terminating, so that is meant
        (PAIR, (), [at("a", ends=True)], []),
        (PAIR, (), [at("a", pool="new"), at("b", pool="new")], ["a", "b"]),  # it has another name
        # the address is another's now
        (members(k=[at("a", host="h")]), (), [at("b", host="h", pool="other")], ["b"]),
    ],
)
def test_what_vanished_of_a_pool_that_answers(
    before: DiscoveredMembers, ended: tuple[str, ...], listed: list[Endpoint], names: list[str]
) -> None:
    now = members(before, answering=("a", "b"), ended=ended, k=listed)
    assert list(now.by_name) == names
    assert bool(now.kept) is (before is ALONE)
    assert {one.replica.pool for one in now.by_name.values()} <= {
        one.replica.pool for one in listed or [at("a")]
    }


def test_a_pool_is_lost_by_one_source_whatever_another_names_of_it() -> None:
    before = members(static=(replica("s"),), k=[at("a")], d=[at("b")])
    now = members(before, static=(replica("s"),), answering=("a",), k=[], d=[at("b")])
    assert now.kept == {("k", "default"): ("a",)}


def test_those_that_were_kept_stay_when_they_are_named_again_and_go_when_others_are() -> None:
    before = members(PAIR, answering=("a", "b"), k=[])
    again = members(before, answering=("a", "b"), k=[at("a"), at("b")])
    assert (sorted(again.by_name), again.kept) == (["a", "b"], {})
    others = members(before, answering=("a", "b"), k=[at("c")])
    assert (sorted(others.by_name), others.kept) == (["a", "b", "c"], {})
    later = members(others, answering=("a", "b"), now=103.0, k=[at("c")])
    assert list(later.by_name) == ["c"]


def test_the_first_source_of_a_name_or_address_is_right_and_the_start_before_all() -> None:
    for second, problem in (
        (at("a", host="elsewhere"), "a is ignored: k also has a replica of this name"),
        (at("z", host="host-a"), "z is ignored: a of k has its address host-a:1:2:3"),
    ):
        found = members(k=[at("a")], d=[second, at("c")])
        assert list(found.by_name) == ["a", "c"]
        assert found.problems == {"d": (problem,)}
    found = members(static=(replica("a"),), k=[at("a")])
    assert found.by_name["a"].replica == replica("a")
    assert found.problems == {"k": ("a is ignored: --triton also has a replica of this name",)}


# --- the fleet follows ---------------------------------------------------------------------------


class FakeSource:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.listener: Listener | None = None

    async def run(self, listener: Listener) -> None:
        self.listener = listener
        await asyncio.Event().wait()

    def tell(self, *endpoints: Endpoint, problems: tuple[str, ...] = ()) -> None:
        assert self.listener is not None
        ordered = sorted(endpoints, key=lambda one: one.replica.name)
        self.listener.told(Listing(tuple(ordered), problems))

    def fail(self, what: str) -> None:
        assert self.listener is not None
        self.listener.failed(Unavailable(what))

    def recover(self) -> None:
        assert self.listener is not None
        self.listener.well()


class Discovered(Scene):
    """A control plane that finds its replicas, all of which load and serve model m."""

    def __init__(self, folder: Path, sources: str = "k", static: tuple[str, ...] = ()) -> None:
        super().__init__(folder, *static, discovers=True)
        self.sources = {name: FakeSource() for name in sources}
        self.may_be_empty = False
        self.discovering = Discovering(
            self.sources,
            [replica(name) for name in static],
            fleet=self.plane.fleet,
            membership=self.membership,
            may_be_empty=lambda: self.may_be_empty,
            clock=self.plane.clock,
            look=0.01,
        )

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator["Discovered"]:
        """The membership runs, and every source is there to be told what to say."""
        await self.plane.reload()
        await self.plane.inventory.scan()
        async with asyncio.timeout(PATIENCE):
            works = (self.membership.run(), self.discovering.run())
            tasks = [asyncio.create_task(work) for work in works]
            try:
                await until(lambda: all(one.listener for one in self.sources.values()))
                yield self
                assert not any(task.done() for task in tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def tell(self, *endpoints: Endpoint | str, problems: tuple[str, ...] = ()) -> None:
        """The first source lists these, which may be names."""
        listed = [at(one) if isinstance(one, str) else one for one in endpoints]
        self.source.tell(*listed, problems=problems)

    async def serves(self, *names: str) -> None:
        """Wait until just these may be called, and nobody else is left."""
        await until(
            lambda: self.called == names and sorted(self.plane.fleet.observations) == list(names),
            within=PATIENCE,
        )

    async def finds(self, *names: str) -> None:
        """The first source lists these, and they may be called."""
        self.tell(*names)
        await self.serves(*names)

    async def looks_twice(self) -> None:
        """Wait until every keeper has had another two rounds."""
        wanted = self.rounds + 2 * len(self.keepers)
        await until(lambda: self.rounds >= wanted, within=PATIENCE)

    @property
    def source(self) -> FakeSource:
        return next(iter(self.sources.values()))

    @property
    def generation(self) -> int:
        return self.plane.publisher.snapshot.generation

    @property
    def status(self) -> SourceStatus:
        return self.discovering.sources[0]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Discovered]:
    """One source, which has said nothing yet."""
    async with Discovered(tmp_path).following() as scene:
        yield scene


async def test_replicas_come_and_go_as_a_source_names_them(scene: Discovered) -> None:
    await scene.finds("a")
    await scene.finds("a", "b")
    scene.tell("b", at("a", ends=True))
    await scene.serves("b")
    await scene.finds("b")
    assert scene.tritons["a"].closed


async def test_nothing_is_published_before_every_source_has_told_its_first_list(
    tmp_path: Path,
) -> None:
    async with Discovered(tmp_path, "kd", static=("s",)).following() as scene:
        scene.tell("a")
        await scene.looks_twice()
        assert (scene.generation, scene.plane.fleet.is_known) == (0, False)
        scene.sources["d"].tell()
        await scene.serves("a", "s")
        assert scene.generation > 0


async def test_nothing_is_published_before_each_of_the_first_list_was_looked_at(
    tmp_path: Path,
) -> None:
    scene = Discovered(tmp_path)
    await scene.plane.reload()
    await scene.plane.inventory.scan()
    await scene.membership.begin([replica("a"), replica("b")])  # nobody looks yet
    scene.plane.fleet.saw("a", {"m": (1, 2)})
    assert await scene.plane.publisher.refresh() == 0
    scene.plane.fleet.lost("b", "refused")
    assert await scene.plane.publisher.refresh() > 0


async def test_while_no_triton_is_found_nothing_is_published_unless_there_may_be_none(
    scene: Discovered,
) -> None:
    scene.tell()
    for _ in range(100):
        await asyncio.sleep(0)
    assert await scene.plane.publisher.refresh() == 0
    scene.may_be_empty = True
    await until(lambda: scene.generation > 0, within=PATIENCE)
    await scene.finds("a")


async def test_a_source_that_fails_changes_nothing(scene: Discovered) -> None:
    await scene.finds("a", "b")
    scene.source.fail("it is away")
    await scene.looks_twice()
    assert scene.called == ("a", "b")
    assert (scene.status.is_up, scene.status.why) == (False, "it is away")
    scene.source.recover()
    assert (scene.status.is_up, scene.status.why) == (True, "")


async def test_a_pool_that_vanishes_goes_on_until_nobody_answers_for_a_while(
    scene: Discovered,
) -> None:
    await scene.finds("a", "b")
    scene.tell()
    await until(lambda: scene.status.problems != ())
    await scene.looks_twice()
    assert scene.called == ("a", "b")
    (problem,) = scene.status.problems
    assert "k no longer lists any replica of pool default (a, b)" in problem
    for name in ("a", "b"):
        scene.tritons[name].is_up = False
    fleet = scene.plane.fleet
    await until(lambda: {one.state for one in fleet.observations.values()} == {"lost"})
    for _ in range(5):  # it may be a short while
        await scene.looks_twice()
    assert scene.status.problems != ()
    assert sorted(fleet.observations) == ["a", "b"]
    scene.plane.clock.now += 11
    await until(lambda: not fleet.observations, within=PATIENCE)
    assert scene.status.problems == ()


async def test_one_that_is_terminating_and_gone_before_anybody_looks_has_not_vanished(
    scene: Discovered,
) -> None:
    await scene.finds("a")
    scene.tell(at("a", ends=True))
    scene.tell()  # no other task has run meanwhile
    await scene.serves()


async def test_one_that_vanished_leaves_when_that_is_believed(scene: Discovered) -> None:
    await scene.finds("a", "b")
    scene.tell("a")
    await scene.looks_twice()
    assert scene.called == ("a", "b")
    scene.plane.clock.now += 2
    await scene.serves("a")


async def test_calls_that_are_in_flight_on_one_that_leaves_are_waited_for(
    scene: Discovered,
) -> None:
    await scene.finds("a", "b")
    scene.counts = [{"b": 2}] * 5
    scene.tell("a", at("b", ends=True))
    await scene.serves("a")
    assert scene.counts == []
    assert set(scene.looks) == {("a",)}


async def test_one_that_comes_back_while_it_is_on_its_way_out_stays(scene: Discovered) -> None:
    await scene.finds("a", "b")
    scene.counts = [{"b": 2}] * 1000
    scene.tell("a", at("b", ends=True))
    await until(lambda: scene.called == ("a",), within=PATIENCE)
    await scene.finds("a", "b")
    assert not scene.tritons["b"].closed


async def test_a_pods_start_counts_from_when_it_was_named_without_being_ready(
    scene: Discovered,
) -> None:
    await scene.finds("a")
    scene.plane.clock.now = 5000.0
    scene.tell("a", "b", replace(at("c"), is_serving=False))
    await scene.serves("a", "b", "c")
    seen = scene.plane.fleet.observations
    assert (seen["a"].joined_at, seen["a"].wished_at) == (None, None)
    assert (seen["b"].joined_at, seen["b"].wished_at) == (5000.0, None)
    assert (seen["c"].joined_at, seen["c"].wished_at) == (5000.0, 5000.0)


# --- what is said --------------------------------------------------------------------------------


async def test_what_is_wrong_is_said_once_and_again_when_it_comes_back(
    scene: Discovered, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.name == "servegate.discovery"]

    caplog.set_level(logging.INFO, "servegate.discovery")
    for names in (("a",), ("a", "b")):
        scene.tell(*names, problems=("odd",))
        await scene.serves(*names)
    assert warnings() == ["k: odd"]
    scene.tell("a", "b")
    await until(lambda: scene.status.problems == ())
    await scene.looks_twice()
    scene.tell("a", "b", problems=("odd",))
    await until(lambda: len(warnings()) == 2)
    for _ in range(3):
        scene.source.fail("away")
    scene.source.recover()
    assert warnings()[2:] == ["away; the last list of k stays active", "k answers again"]


async def test_every_source_has_its_numbers(tmp_path: Path) -> None:
    async with Discovered(tmp_path, "kd").following() as scene:
        scene.tell("a", "b", problems=("odd", "even"))
        found = {
            one.name: {sample.labels["source"]: sample.value for sample in one.samples}
            for one in scene.discovering.collect()
        }
    assert found["servegate_discovery_up"] == {"k": 1, "d": 0}
    assert found["servegate_discovery_endpoints"] == {"k": 2, "d": 0}
    assert found["servegate_discovery_problems"] == {"k": 2, "d": 0}


async def test_a_source_is_shown_with_how_long_it_has_been_as_it_is(scene: Discovered) -> None:
    scene.plane.clock.now += 3
    assert scene.status == SourceStatus("k", False, 3.0, None, "it has not answered yet", ())
    scene.tell(replace(at("a"), zone="eu-1b"))
    found = scene.discovering.endpoint("a")
    assert found is not None and found.zone == "eu-1b"
    assert scene.discovering.endpoint("b") is None
    scene.plane.clock.now += 4
    assert scene.status == SourceStatus("k", True, 4.0, 1, "", ())
    scene.source.fail("it is away")
    scene.source.fail("it is away still")
    scene.plane.clock.now += 5
    assert scene.status == SourceStatus("k", False, 5.0, 1, "it is away still", ())


async def test_without_a_source_there_is_nothing_to_be_done(tmp_path: Path) -> None:
    scene = Discovered(tmp_path, "")
    await scene.discovering.run()
    assert scene.discovering.sources == ()
