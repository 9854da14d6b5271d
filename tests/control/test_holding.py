"""Who holds what, kept in sets: always what looking at every replica would give."""

from collections.abc import Mapping
from types import MappingProxyType

from builders import Clock, replica
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.control.fleet import Fleet
from serve.control.observations import FlavourChoice, Observation

NAMES, MODELS, POOLS = ("a", "b", "c", "d"), ("m", "n"), ("x", "y")


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
held = st.dictionaries(st.sampled_from(MODELS), versions.filter(bool), max_size=2)
slots = st.tuples(st.sampled_from(MODELS), st.integers(1, 2))
STEPS = st.one_of(
    st.tuples(st.just("saw"), replicas, held),
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
