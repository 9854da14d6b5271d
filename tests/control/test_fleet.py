"""The fleet: who holds a version, and what stays in force when replicas are lost."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from builders import Clock, ControlPlane, replica, write_model
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.control.fleet import LOADING, Fleet, Holders
from serve.control.fleet_meters import FleetMeters, missing_versions
from serve.control.observations import FlavourChoice, LoadFailure, Observation


def fleet(*names: str) -> Fleet:
    return Fleet(tuple(replica(name) for name in names), clock=Clock(5.0))


def held(one: Fleet, version: int) -> str:
    """The holders of a version of model m, whose names are letters."""
    return "".join(one.holders("m", version, "default"))


def test_what_is_about_to_go_has_gone_or_has_not() -> None:
    two = fleet("a", "b")
    for name in ("a", "b"):
        two.saw(name, {"m": (1, 2)})
    two.leave("a", "m", (1,))
    assert (held(two, 1), held(two, 2)) == ("b", "ab")
    assert not two.wrong("a")
    assert not two.left("b") and two.left("a")
    assert held(two, 1) == "ab"


def test_a_lost_replica_gets_no_calls_unless_no_other_holds_the_version() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1, 2)})
    two.saw("b", {"m": (1,)})
    two.lost("a", "refused")
    assert (held(two, 1), held(two, 2)) == ("b", "a")
    two.lost("b", "refused")  # who has lost sight of everything switches nothing off
    assert (held(two, 1), held(two, 2)) == ("ab", "a")
    two.saw("a", {})  # it comes back empty
    assert (held(two, 1), held(two, 2)) == ("b", "")


def test_only_news_is_news() -> None:
    one, first, both = fleet("a"), {"m": (1,)}, {"m": (1, 2)}
    assert [one.saw("a", each) for each in (first, first, both)] == [True, False, True]
    assert [one.lost("a", why) for why in ("refused", "refused again")] == [True, False]
    assert one.saw("a", both)


def test_an_operator_sees_the_state_of_a_replica_since_when_and_why() -> None:
    clock = Clock(10.0)
    one = Fleet((replica("a"),), clock=clock)

    def seen() -> tuple[str, str, float]:
        found = one.observations["a"]
        return found.state, found.why, found.since

    assert seen()[:2] == ("unseen", "")
    one.saw("a", {})
    clock.now = 20.0
    one.saw("a", {"m": (1,)})
    assert seen() == ("up", "", 10.0)
    one.manages_itself("a")
    one.failures["a", "m"] = LoadFailure("bad file", (), 1, 0.0)
    one.lost("a", "refused")
    assert seen() == ("lost", "refused", 20.0)
    assert not one.failures  # it may come back as another
    one.saw("a", {})
    assert not one.observations["a"].self_managed  # it may take load calls again


def test_the_fleet_is_known_once_every_replica_was_looked_at_and_one_has_answered() -> None:
    two = fleet("a", "b")
    two.lost("a", "refused")
    assert not two.is_known
    two.lost("b", "refused")
    assert not two.is_known
    two.saw("b", {})
    two.lost("b", "refused")
    assert two.is_known
    left, empty = fleet("a", "b"), fleet("a")
    left.lost("a", "refused")
    left.remove("b")
    assert not left.is_known
    empty.remove("a")
    assert empty.is_known  # nobody of the start is there to be waited for


def test_one_that_joins_is_not_waited_for_and_one_that_nobody_waits_for_is_known() -> None:
    clock = Clock(10.0)
    one = Fleet((), clock=clock)
    assert one.is_known
    one.join(replica("a", pool="a100"), wished_at=4.0)
    assert one.is_known and one.pools == {"a100"}
    seen = one.observations["a"]
    assert (seen.state, seen.joined_at, seen.wished_at) == ("unseen", 10.0, 4.0)
    assert not one.is_present("a") and not one.is_free("a")


def test_one_that_retires_gets_no_calls_even_if_nobody_else_can_answer_them() -> None:
    one = fleet("a")
    one.saw("a", {"m": (1,)})
    one.retire("a")
    assert (held(one, 1), one.in_pool("default"), dict(one.staying)) == ("", (), {})
    assert not one.is_present("a") and not one.can_be_called("a", "m", 1)
    one.take_back("a")
    assert held(one, 1) == "a"


def test_nothing_is_left_of_one_that_is_removed() -> None:
    two = fleet("a", "b")
    for name in ("a", "b"):
        two.saw(name, {"m": (1,)})
        two.bar(name, "m", [1], "wrong")
        two.failures[name, "m"] = LoadFailure("bad file", (), 1, 0.0)
        two.flavours[name, "m"] = "fp16"
        two.joining.add(name)
        two.waiting[name] = "no spare"
    two.tries("a", "m", "r1")
    walked = iter(two.observations)
    two.retire("a")
    two.remove("a")
    assert list(walked) == ["a", "b"]  # who walks through it meanwhile goes on
    assert list(two.observations) == ["b"] and two.joining == {"b"} and list(two.waiting) == ["b"]
    assert list(two.failures) == list(two.flavours) == [("b", "m")]
    assert two.tried_by("m", "r1") == "" and not two.wrong("a") and two.wrong("b")
    two.join(replica("a"))
    two.saw("a", {"m": (1,)})
    assert held(two, 1) == "a"


def test_a_fleet_that_is_yet_to_be_discovered_is_known_when_all_of_it_were_looked_at() -> None:
    found = Fleet((replica("s"),), clock=Clock(), is_complete=False)
    found.saw("s", {})
    assert not found.is_known and not found.is_complete
    found.join(replica("a"))
    found.complete()
    assert found.is_complete and not found.is_known
    found.lost("a", "refused")
    assert found.is_known
    found.join(replica("b"))
    assert found.is_known  # who joins later is not waited for


def test_of_a_fleet_that_was_discovered_one_has_to_answer_unless_there_is_none() -> None:
    found, empty = (Fleet((), clock=Clock(), is_complete=False) for _ in range(2))
    found.join(replica("a"))
    found.complete()
    found.lost("a", "refused")
    assert not found.is_known
    found.saw("a", {})
    assert found.is_known
    assert not empty.is_known
    empty.complete()
    assert empty.is_known


# --- what Prometheus is told of replicas ----------------------------------------------------------


def told(plane: ControlPlane) -> dict[str, dict[str, float]]:
    """By the metric's name and the replica."""
    return {
        family.name.removeprefix("servegate_replica_"): {
            sample.labels["replica"]: sample.value
            for sample in family.samples
            if sample.labels["pool"] == "default"
        }
        for family in FleetMeters(plane.fleet, plane.inventory).collect()
    }


@pytest.fixture
async def plane(tmp_path: Path) -> ControlPlane:
    """A model with versions 1 and 2, of which replica a holds the first and b the second."""
    plane = ControlPlane(tmp_path)
    write_model(plane.repository)
    return await plane.begin(a={"m": (1,)}, b={"m": (2,)})


async def test_what_a_replica_lacks_is_told_while_it_answers(plane: ControlPlane) -> None:
    plane.fleet.saw("a", {"m": (1, 2)})
    assert told(plane) == {"up": {"a": 1, "b": 1}, "missing_versions": {"a": 0, "b": 1}}
    plane.fleet.lost("b", "refused")
    assert told(plane) == {"up": {"a": 1, "b": 0}, "missing_versions": {"a": 0}}


async def test_a_version_that_is_held_and_may_not_be_called_is_missing(plane: ControlPlane) -> None:
    plane.fleet.bar("a", "m", [1], LOADING)
    plane.fleet.bar("b", "m", [2], "it answers wrongly")
    assert told(plane)["missing_versions"] == {"a": 2, "b": 2}


async def test_what_could_not_be_loaded_is_missing_and_is_not_waited_for(
    plane: ControlPlane,
) -> None:
    plane.fleet.failures["a", "m"] = LoadFailure("it is broken", (), 1, 0.0)
    assert told(plane)["missing_versions"] == {"a": 1, "b": 1}
    assert missing_versions(plane.fleet, plane.inventory, failed=False) == {"a": 0, "b": 1}


async def test_nothing_is_missing_on_who_leaves_loads_for_itself_or_cannot_run_it(
    plane: ControlPlane,
) -> None:
    plane.fleet.retire("a")
    plane.fleet.choose("b", {"m": FlavourChoice("", {"tensorrt": "a GPU"}, {})})
    assert told(plane)["missing_versions"] == {"b": 0}
    plane.fleet.manages_itself("b")
    assert told(plane)["missing_versions"] == {}


# --- who holds what, kept in sets, is what looking at every replica would give --------------------

NAMES, MODELS, POOLS = ("a", "b", "c", "d"), ("m", "n"), ("x", "y")


def test_equal_sets_are_put_in_order_once() -> None:
    holding = Holders()
    assert holding.ordered({"b", "a"}) == ("a", "b")
    assert holding.ordered({"b", "a"}) is holding.ordered({"a", "b"})
    for number in range(100):  # however many there are
        assert holding.ordered({str(number)}) == (str(number),)


class Plain:
    """What `Fleet.holders` says, by looking at every replica."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.barred: set[tuple[str, str, int]] = set()
        self.leaving: set[tuple[str, str, int]] = set()

    def holders(self, name: str, version: int, *pools: str, steers: bool) -> tuple[str, ...]:
        fleet = self.fleet
        everybody = [one for one in fleet.observations.values() if not fleet.is_retired(_name(one))]
        having = [
            one
            for one in everybody
            if version in one.held.get(name, ())
            and (_name(one), name, version) not in self.barred | self.leaving
        ]
        members = [one for one in everybody if one.replica.pool in pools]
        own = [one for one in having if one in members]
        here = {_name(one) for one in own if one.is_up}
        lacks = [
            one
            for one in members
            if one.is_up and _name(one) not in here and fleet.can_hold(_name(one), name)
        ]
        own = having if not here or lacks else own
        present = [one for one in own if one.is_up]
        busy = fleet.steered | fleet.joining
        free = [one for one in present if not steers or _name(one) not in busy]
        return tuple(sorted(map(_name, free or present or own)))


def _name(one: Observation) -> str:
    return one.replica.name


replicas = st.sampled_from(NAMES)
versions = st.lists(st.integers(1, 2), max_size=2, unique=True).map(lambda v: tuple(sorted(v)))
holdings = st.dictionaries(st.sampled_from(MODELS), versions.filter(bool), max_size=2)
slots = st.tuples(st.sampled_from(MODELS), st.integers(1, 2))
STEPS = st.one_of(
    st.tuples(st.just("saw"), replicas, holdings),
    st.tuples(st.sampled_from(["lost", "join", "remove", "retire", "take_back"]), replicas),
    st.tuples(st.sampled_from(["steer", "join up", "left", "unfit", "fit"]), replicas),
    st.tuples(st.sampled_from(["bar", "admit", "leave"]), replicas, slots),
)


def step(fleet: Fleet, plain: Plain, what: str, name: str, more: object = None) -> None:
    """One thing that happens; what cannot happen then does not."""
    is_there = name in fleet.observations
    if what == "join" and not is_there:
        fleet.join(replica(name, pool=POOLS[NAMES.index(name) % 2]))
    if not is_there:
        return
    if what == "saw" and isinstance(more, Mapping):
        fleet.saw(name, MappingProxyType(dict(more)))
        # what is wrong, and gone, is no longer barred
        plain.barred = {
            slot for slot in plain.barred if slot[0] != name or slot[2] in more.get(slot[1], ())
        }
    elif what in ("bar", "admit", "leave") and isinstance(more, tuple):
        model, version = more
        if what == "bar":
            fleet.bar(name, model, [version], "wrong")
            plain.barred.add((name, model, version))
        elif what == "admit":
            fleet.admit(name, model, version)
            plain.barred.discard((name, model, version))
        else:
            fleet.leave(name, model, [version])
            plain.leaving.add((name, model, version))
    else:
        _change(fleet, what, name)
        if what in ("left", "remove"):
            plain.leaving = {slot for slot in plain.leaving if slot[0] != name}
        if what == "remove":
            plain.barred = {slot for slot in plain.barred if slot[0] != name}


def _change(fleet: Fleet, what: str, name: str) -> None:
    nothing, some = FlavourChoice("", {}, {}), FlavourChoice("fp16", {}, {})
    changes = {
        "lost": lambda: fleet.lost(name, "refused"),
        "remove": lambda: fleet.remove(name),
        "retire": lambda: fleet.retire(name),
        "take_back": lambda: fleet.take_back(name),
        "steer": lambda: fleet.steered.symmetric_difference_update({name}),
        "join up": lambda: fleet.joining.symmetric_difference_update({name}),
        "left": lambda: fleet.left(name),
        "unfit": lambda: fleet.choose(name, {"m": nothing}),
        "fit": lambda: fleet.choose(name, {"m": some}),
    }
    changes.get(what, lambda: None)()


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_the_holders_are_those_that_a_look_at_everybody_finds(
    steps: list[tuple[object, ...]],
) -> None:
    first = tuple(replica(name, pool=POOLS[at % 2]) for at, name in enumerate(NAMES[:3]))
    fleet = Fleet(first, clock=Clock())
    plain = Plain(fleet)
    for name in NAMES[:3]:
        fleet.saw(name, {"m": (1,), "n": (1, 2)})
    for one in steps:
        step(fleet, plain, *one)  # type: ignore[arg-type]
        for model in MODELS:
            for pools in (("x",), ("y",), ("x", "y")):
                for steers in (True, False):
                    found = fleet.holders(model, 1, *pools, steers=steers)
                    assert found == plain.holders(model, 1, *pools, steers=steers)
        there = [name for name in fleet.observations if not fleet.is_retired(name)]
        assert list(fleet.staying) == sorted(there)
        assert set(fleet.in_pool("x")) == {n for n in there if fleet.staying[n].pool == "x"}
