"""Balancing: the least busy replica, turns among equals, and sequences that stay where they are."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from serve.proxy.balancing import pick

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


def test_the_replica_with_the_fewest_calls_is_picked() -> None:
    assert choose("a", "b", "c", loads={"a": 3, "b": 1, "c": 2}, turn=7) == "b"


def test_among_equals_the_turn_goes_round() -> None:
    loads = {"a": 1, "b": 0, "c": 0, "d": 0}
    assert [choose(*NAMES, loads=loads, turn=turn) for turn in range(6)] == list("bcdbcd")


def test_a_pair_follows_the_same_rule() -> None:
    for loads, picked in (
        ({"a": 2, "b": 1}, "bb"),
        ({"a": 1}, "bb"),
        ({"b": 1}, "aa"),
        ({}, "ab"),
        ({"a": 3, "b": 3}, "ab"),
    ):
        assert [choose("a", "b", loads=loads, turn=turn) for turn in (4, 5)] == list(picked), loads


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


def test_an_avoided_replica_is_passed_over_even_when_it_is_idle() -> None:
    assert choose("a", "b", loads={"b": 50}, avoided="a") == "b"


def test_when_all_are_avoided_they_are_tried_as_if_none_were() -> None:
    assert choose("a", "b", loads={"a": 1}, avoided="ab") == "b"


def test_without_replicas_there_is_none_to_try() -> None:
    assert choose() is None
    assert choose(sequence="n1") is None


def test_a_preferred_replica_is_picked_however_busy_it_is() -> None:
    for names in (("a",), ("a", "b"), NAMES):
        assert {choose(*names, loads={"a": 9}, turn=turn, prefer="a") for turn in range(4)} == {
            "a"
        }, names


def test_a_preferred_replica_that_is_avoided_is_passed_over() -> None:
    assert choose("a", "b", avoided="a", prefer="a") == "b"


def test_a_preferred_replica_that_is_no_candidate_decides_nothing() -> None:
    assert choose("a", "b", loads={"a": 1}, prefer="z") == "b"


def test_a_sequence_counts_for_more_than_a_preference() -> None:
    places = {choose(*NAMES, sequence="n77", prefer=name) for name in NAMES}
    assert len(places) == 1


def test_a_sequence_stays_on_its_replica_whatever_the_loads_and_turns() -> None:
    places = {
        choose(*names, loads={"a": n}, avoided="b", turn=n, sequence="n77")
        for n, names in enumerate([NAMES, NAMES[::-1], ("c", "a", "d", "b")])
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


def test_in_a_large_fleet_an_avoided_replica_is_passed_over() -> None:
    for few in (FLEET[3:], FLEET[:-1], FLEET):  # those that are left, or none
        avoided = set(FLEET) - set(few)
        places = {pick(FLEET, loads={}, avoided=avoided, turn=turn) for turn in range(len(FLEET))}
        assert places == set(few)


def test_in_a_large_fleet_one_that_is_left_is_found() -> None:
    for turn in range(50):
        avoided = {name for name in FLEET if name != "r0700"}
        assert pick(FLEET, loads={}, avoided=avoided, turn=turn) == "r0700"
        assert pick(FLEET, loads={}, avoided=FLEET, turn=turn) in FLEET
        assert pick(FLEET, loads={}, turn=turn, prefer="r0500") == "r0500"
