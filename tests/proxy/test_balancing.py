"""Balancing: the least busy replica, turns among equals, and sequences that stay where they are."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from serve.proxy.balancing import MANY, pick

NAMES = ("a", "b", "c", "d")


def choose(
    *names: str,
    loads: Mapping[str, int] | None = None,
    avoided: str = "",
    turn: int = 0,
    sequence: str = "",
    prefer: str = "",
) -> str | None:
    return pick(
        names, loads=loads or {}, avoided=avoided, turn=turn, sequence=sequence, prefer=prefer
    )


def test_the_replica_with_the_fewest_calls_is_picked_and_among_equals_the_turn_goes_round() -> None:
    for names, loads, picked in (
        (NAMES, {"a": 1}, "bcdbcd"),
        (NAMES, {"a": 3, "b": 1, "c": 2, "d": 2}, "bbbbbb"),
        ("ab", {"a": 2, "b": 1}, "bbbbbb"),
        ("ab", {"a": 1}, "bbbbbb"),
        ("ab", {"b": 1}, "aaaaaa"),
        ("ab", {}, "ababab"),
        ("ab", {"a": 3, "b": 3}, "ababab"),
    ):
        assert [choose(*names, loads=loads, turn=turn) for turn in range(6)] == list(picked), loads


def test_an_avoided_replica_is_passed_over_unless_all_are_avoided() -> None:
    assert choose("a", "b", loads={"b": 50}, avoided="a") == "b"
    assert choose("a", "b", loads={"a": 1}, avoided="ab") == "b"


@given(
    names=st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True),
    loads=st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 3)),
    avoided=st.sets(st.sampled_from("abcdefg")),
    turn=st.integers(0, 1 << 40),
)
def test_nobody_who_may_be_picked_is_less_busy(
    names: list[str], loads: dict[str, int], avoided: set[str], turn: int
) -> None:
    candidates = [name for name in names if name not in avoided] or names
    picked = choose(*names, loads=loads, avoided="".join(avoided), turn=turn)
    assert picked in candidates
    assert loads.get(picked, 0) == min(loads.get(name, 0) for name in candidates)


def test_without_replicas_there_is_none_to_try() -> None:
    assert choose() is None
    assert choose(sequence="n1") is None


def test_a_preferred_replica_is_picked_however_busy_it_is_unless_it_is_avoided_or_away() -> None:
    for names in (("a",), ("a", "b"), NAMES):
        places = {choose(*names, loads={"a": 9}, turn=turn, prefer="a") for turn in range(4)}
        assert places == {"a"}, names
    assert choose("a", "b", avoided="a", prefer="a") == "b"
    assert choose("a", "b", loads={"a": 1}, prefer="z") == "b"


def test_a_sequence_stays_on_its_replica_whatever_the_loads_turns_and_preferences() -> None:
    places = {
        choose(*names, loads={"a": n}, avoided="b", turn=n, sequence="n77", prefer=prefer)
        for n, names in enumerate([NAMES, NAMES[::-1], ("c", "a", "d", "b")])
        for prefer in NAMES
    }
    assert len(places) == 1


def test_a_replica_that_leaves_moves_only_its_own_sequences() -> None:
    sequences = [f"n{n}" for n in range(500)]
    before = {one: choose(*NAMES, sequence=one) for one in sequences}
    after = {one: choose("a", "b", "d", sequence=one) for one in sequences}
    assert all(after[one] == before[one] for one in sequences if before[one] != "c")
    assert {after[one] for one in sequences if before[one] == "c"} == {"a", "b", "d"}


def test_sequences_are_spread_over_all_replicas() -> None:
    counts = Counter(choose(*NAMES, sequence=f"n{n}") for n in range(2000))
    assert set(counts) == set(NAMES)
    assert all(400 < count < 600 for count in counts.values())


FLEET = tuple(f"r{number:04}" for number in range(1000))


def test_in_a_large_fleet_too_the_turn_goes_through_all_of_it() -> None:
    places = Counter(choose(*FLEET, turn=turn) for turn in range(len(FLEET)))
    assert set(places) == set(FLEET) and set(places.values()) == {1}


def test_in_a_large_fleet_a_busy_replica_is_passed_over() -> None:
    for busy in (FLEET[::2], FLEET[:7], FLEET[-7:]):
        loads = dict.fromkeys(busy, 1)
        assert not {choose(*FLEET, loads=loads, turn=turn) for turn in range(2000)} & loads.keys()


def test_in_a_large_fleet_calls_that_stay_are_spread_evenly() -> None:
    loads: Counter[str] = Counter()
    for turn in range(10 * len(FLEET)):
        loads[choose(*FLEET, loads=loads, turn=turn) or ""] += 1
    assert set(loads.values()) == {10}


def test_in_a_large_fleet_those_that_are_not_avoided_are_found() -> None:
    for left in (FLEET[3:], FLEET[:-1], FLEET, ("r0700",)):
        avoided = set(FLEET) - set(left)
        places = {pick(FLEET, loads={}, avoided=avoided, turn=turn) for turn in range(len(FLEET))}
        assert places == set(left)
    assert pick(FLEET, loads={}, avoided=FLEET, turn=1) in FLEET
    assert {pick(FLEET, loads={}, turn=turn, prefer="r0500") for turn in range(9)} == {"r0500"}


def test_in_a_large_fleet_that_is_avoided_as_a_whole_calls_still_take_turns() -> None:
    names = [f"replica-{number}" for number in range(MANY + 10)]
    picked = {pick(names, loads={}, avoided=names, turn=turn) for turn in range(len(names))}
    assert len(picked) > MANY / 2
